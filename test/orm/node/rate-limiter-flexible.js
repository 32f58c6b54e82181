// rate-limiter-flexible with PostgreSQL, and the calls of ../stores.py.  A value is the number of points that a
// client has used.

import pg from 'pg';
import { RateLimiterPostgres } from 'rate-limiter-flexible';
import { serve } from '../serve.mjs';

const pool = new pg.Pool();
let limiter;

serve({
	async migrate() {
		const options = { storeClient: pool, tableName: 'store', points: 100, duration: 24 * 3600, clearExpiredByTimeout: false };
		await new Promise((resolve, reject) => {
			limiter = new RateLimiterPostgres(options, (error) => (error ? reject(error) : resolve()));
		});
		// The table has no document, so it gets an empty one.
		await pool.query(`ALTER TABLE store ADD COLUMN doc jsonb NOT NULL DEFAULT '{}'`);
		await pool.query(`SELECT ttl_docs.adopt('store', 3600)`);
		return { touch: false, increment: true, set_many: false };
	},
	async get(key) {
		return (await limiter.get(key))?.consumedPoints;
	},
	set: (key, value) => limiter.set(key, value, 24 * 3600).then(() => null),
	remove: (key) => limiter.delete(key),
	async increment(key) {
		return (await limiter.consume(key)).consumedPoints;
	},
	close: () => pool.end(),
});
