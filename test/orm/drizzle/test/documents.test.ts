import assert from 'node:assert/strict';
import { test } from 'node:test';
import { eq } from 'drizzle-orm';
import { carts, tokens } from '../src/schema.ts';
import { expiresAt } from '../src/ttl.ts';
import { db, refusal, useMigratedDatabase } from './database.ts';

useMigratedDatabase();

const HOUR = 3600;

async function createCart(customer: string, ttl?: number | null) {
	const [cart] = await db.insert(carts).values({ data: { customer, ttl } }).returning();
	return cart!;
}

async function secondsToLive(id: number) {
	const [cart] = await db
		.select({ written: carts._ts, expires: expiresAt(carts) })
		.from(carts)
		.where(eq(carts.id, id));
	const { written, expires } = cart!;
	return expires && (expires.getTime() - written.getTime()) / 1000;
}

async function customers() {
	const rows = await db.select({ data: carts.data }).from(carts).orderBy(carts.id);
	return rows.map(({ data }) => data.customer);
}

/** The server's error for a document with this invalid ttl. */
function invalidTtl(ttl: string, table = 'carts') {
	return refusal('22023', `invalid "ttl" in a document of "${table}": ${ttl}`);
}

test('expiresAt() selects the time at which a document expires', async () => {
	for (const [ttl, seconds] of [[undefined, HOUR], [null, HOUR], [120, 120], [-1, null]] as const) {
		const cart = await createCart('Ann', ttl);
		assert.equal(cart._ttl, ttl ?? null);
		assert.equal(await secondsToLive(cart.id), seconds);
	}
});

test('the server sets _ts, and RETURNING returns it', async () => {
	const earlier = new Date();
	const cart = await createCart('Ann');

	assert.ok(cart._ts >= earlier && cart._ts <= new Date());
});

test('the server replaces system columns from the client', async () => {
	const earlier = new Date();
	const [cart] = await db
		.insert(carts)
		.values({ data: { customer: 'Ann' }, _ts: new Date(0), _ttl: 7, _slot: 7 })
		.returning();

	assert.ok(cart!._ts >= earlier);
	assert.equal(cart!._ttl, null);
	assert.notEqual(cart!._slot, 7);
});

test('a row with its system columns can be converted to JSON', async () => {
	const cart = await createCart('Ann');

	assert.equal(JSON.parse(JSON.stringify(cart)).data.customer, 'Ann');
});

test('a ttl that is a string is an error for TypeScript and for the server', async () => {
	await assert.rejects(
		// @ts-expect-error: in the type of the document, ttl is a number
		db.insert(tokens).values({ code: 'a', data: { purpose: 'login', ttl: '60' } }),
		invalidTtl('"60"', 'tokens'),
	);
});

test('an invalid ttl aborts its transaction, and the connection still works', async () => {
	await assert.rejects(
		db.transaction(async (tx) => {
			await tx.insert(carts).values({ data: { customer: 'Ann' } });
			await tx.insert(carts).values({ data: { customer: 'Bob', ttl: 0 } });
		}),
		invalidTtl('0'),
	);

	await createCart('Cleo');
	assert.deepEqual(await customers(), ['Cleo']);
});

test('an invalid ttl in a nested transaction (a savepoint) does not abort the outer transaction', async () => {
	await db.transaction(async (tx) => {
		await tx.insert(carts).values({ data: { customer: 'Ann' } });
		await assert.rejects(
			tx.transaction((nested) =>
				nested.insert(carts).values({ data: { customer: 'Bob', ttl: 0 } }),
			),
			invalidTtl('0'),
		);
		await tx.insert(carts).values({ data: { customer: 'Cleo' } });
	});

	assert.deepEqual(await customers(), ['Ann', 'Cleo']);
});
