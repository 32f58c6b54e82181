// Tests that run in a transaction and roll it back also work with collections.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TransactionRollbackError } from 'drizzle-orm';
import type { Db } from '../src/db.ts';
import { carts } from '../src/schema.ts';
import { db, travelInTransaction, useMigratedDatabase } from './database.ts';

useMigratedDatabase();

async function rolledBack(work: (tx: Db) => Promise<void>) {
	const transaction = db.transaction(async (tx) => {
		await work(tx);
		tx.rollback();
	});
	await assert.rejects(transaction, TransactionRollbackError);
}

test('documents expire in a transaction, and its rollback resets the clock', async () => {
	await rolledBack(async (tx) => {
		await tx.insert(carts).values({ data: { customer: 'Ann', ttl: 60 } });
		assert.equal(await tx.$count(carts), 1);
		await travelInTransaction(tx, 60);
		assert.equal(await tx.$count(carts), 0);
	});

	assert.equal(await db.$count(carts), 0);
	await db.insert(carts).values({ data: { customer: 'Bob', ttl: 60 } });
	assert.equal(await db.$count(carts), 1);
});
