// connect-pg-simple, which stores the sessions of Express, and the calls of ../stores.py.

import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { promisify } from 'node:util';
import connectPgSimple from 'connect-pg-simple';
import session from 'express-session';
import pg from 'pg';
import { serve } from '../serve.mjs';

const pool = new pg.Pool();
// Expired sessions are purged by ttl_docs.
const store = new (connectPgSimple(session))({ pool, tableName: 'store', pruneSessionInterval: false });
const [get, set, destroy, touch] = ['get', 'set', 'destroy', 'touch'].map((name) => promisify(store[name].bind(store)));
// Express limits the age of a cookie.  ttl_docs expires the session an hour after its last request.
const cookie = { maxAge: 24 * 3600 * 1000 };

serve({
	async migrate() {
		const script = createRequire(import.meta.url).resolve('connect-pg-simple/table.sql');
		await pool.query((await readFile(script, 'utf8')).replace('TABLE "session"', 'TABLE store').replace('TABLE "session"', 'TABLE store')
			.replace('ON "session"', 'ON store'));
		await pool.query('ALTER TABLE store ALTER COLUMN sess TYPE jsonb');
		await pool.query(`SELECT ttl_docs.adopt('store', 3600)`);
		return { touch: true, increment: false, set_many: false };
	},
	async get(key) {
		return (await get(key))?.value;
	},
	set: (key, value) => set(key, { cookie, value }),
	remove: (key) => destroy(key),
	touch: (key) => touch(key, { cookie }),
	close: () => pool.end(),
});
