// keyv with @keyv/postgres, a cache, and the calls of ../stores.py.

import { KeyvPostgres } from '@keyv/postgres';
import Keyv from 'keyv';
import pg from 'pg';
import { serve } from '../serve.mjs';

const pool = new pg.Pool();
const store = new KeyvPostgres({ uri: '', table: 'store' });
const cache = new Keyv({ store });

serve({
	async migrate() {
		// The first call of the store waits for its CREATE TABLE.
		await cache.get('none');
		// The value is text, so the document is an empty one.
		await pool.query(`ALTER TABLE store ADD COLUMN doc jsonb NOT NULL DEFAULT '{}'`);
		await pool.query(`SELECT ttl_docs.adopt('store', 3600)`);
		return { touch: false, increment: false, set_many: true };
	},
	get: (key) => cache.get(key),
	set: (key, value) => cache.set(key, value),
	remove: (key) => cache.delete(key),
	set_many: (entries) => cache.setMany(entries.map(([key, value]) => ({ key, value }))),
	async close() {
		await cache.disconnect();
		await pool.end();
	},
});
