// The test database and its clock.
import assert from 'node:assert/strict';
import { after, before, beforeEach } from 'node:test';
import { sql } from 'drizzle-orm';
import { connect } from '../src/db.ts';
import type { Db } from '../src/db.ts';
import { serverError } from '../src/errors.ts';
import { migrateToLatest } from '../src/migrate.ts';
import { carts, cartItems, sessions, tokens, users } from '../src/schema.ts';

/** One connection, so that travel() moves the clock of all later statements. */
export const db = connect({ max: 1 });

/** Sets the clock of the connection to so many seconds after the real time. */
export async function travel(seconds: number) {
	await db.execute(sql`select set_config('ttl_docs.clock_offset', ${`${seconds}s`}, false)`);
}

/** Moves the clock of one transaction: behind pgbouncer, the next one may use another connection. */
export async function travelInTransaction(tx: Db, seconds: number) {
	await tx.execute(sql`select set_config('ttl_docs.clock_offset', ${`${seconds}s`}, true)`);
}

/** Runs the work with the clock so many seconds in the past. */
export async function inThePast<Result>(seconds: number, work: () => Promise<Result>) {
	await travel(-seconds);
	const result = await work();
	await travel(0);
	return result;
}

export async function emptyDatabase() {
	await db.execute(sql`drop schema if exists drizzle cascade`);
	await db.execute(sql`drop schema public cascade`);
	await db.execute(sql`create schema public`);
}

/** Gives each test of a file the migrated database with empty tables, and the real time. */
export function useMigratedDatabase() {
	before(async () => {
		await emptyDatabase();
		await migrateToLatest(db);
	});
	beforeEach(async () => {
		await db.execute(
			sql`truncate ${users}, ${sessions}, ${tokens}, ${carts}, ${cartItems} restart identity`,
		);
		await travel(0);
	});
	after(() => db.$client.end());
}

/** For assert.rejects(): checks the server's error, which is the cause of Drizzle's error. */
export function refusal(code: string, message: string | RegExp) {
	return (error: unknown) => {
		const answer = serverError(error);
		assert.equal(answer?.code, code);
		if (typeof message === 'string') {
			assert.equal(answer.message, message);
		} else {
			assert.match(answer.message, message);
		}
		return true;
	};
}
