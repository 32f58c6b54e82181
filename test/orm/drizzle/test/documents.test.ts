import assert from 'node:assert/strict';
import { test } from 'node:test';
import { eq } from 'drizzle-orm';
import { carts, tokens } from '../src/schema.ts';
import { expiresAt } from '../src/ttl.ts';
import { db, inThePast, refusal, travel, useMigratedDatabase } from './database.ts';

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

test('a document without a ttl, or with a ttl of null, inherits the DefaultTTL', async () => {
	const none = await createCart('Ann');
	const unset = await createCart('Bob', null);

	assert.equal(await secondsToLive(none.id), HOUR);
	assert.equal(await secondsToLive(unset.id), HOUR);
	await travel(HOUR - 60);
	assert.deepEqual(await customers(), ['Ann', 'Bob']);
	await travel(HOUR);
	assert.deepEqual(await customers(), []);
});

test('a document can have its own ttl', async () => {
	const cart = await createCart('Ann', 120);

	assert.equal(cart._ttl, 120);
	assert.equal(await secondsToLive(cart.id), 120);
	await travel(120);
	assert.deepEqual(await customers(), []);
});

test('a document with ttl -1 never expires', async () => {
	const cart = await createCart('Ann', -1);

	assert.equal(await secondsToLive(cart.id), null);
	await travel(10 * 365 * 24 * HOUR);
	assert.deepEqual(await customers(), ['Ann']);
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

test('a bulk insert accepts documents with different ttls', async () => {
	await db
		.insert(carts)
		.values([
			{ data: { customer: 'Ann' } },
			{ data: { customer: 'Bob', ttl: 60 } },
			{ data: { customer: 'Cleo', ttl: -1 } },
		]);

	assert.deepEqual(await customers(), ['Ann', 'Bob', 'Cleo']);
	await travel(60);
	assert.deepEqual(await customers(), ['Ann', 'Cleo']);
	await travel(HOUR);
	assert.deepEqual(await customers(), ['Cleo']);
});

test('reading an expired document finds nothing', async () => {
	const { id } = await inThePast(HOUR, () => createCart('Ann'));

	assert.equal(await db.query.carts.findFirst({ where: eq(carts.id, id) }), undefined);
	assert.deepEqual(await db.query.carts.findMany(), []);
	assert.deepEqual(await db.select().from(carts).where(eq(carts.id, id)), []);
});

test("a ttl of 0 throws an error with the server's message, and nothing is written", async () => {
	await assert.rejects(createCart('Ann', 0), invalidTtl('0'));

	assert.deepEqual(await customers(), []);
});

test('a ttl that is a string is an error for TypeScript and for the server', async () => {
	await assert.rejects(
		// @ts-expect-error: in the type of the document, ttl is a number
		db.insert(tokens).values({ code: 'a', data: { purpose: 'login', ttl: '60' } }),
		invalidTtl('"60"', 'tokens'),
	);
});

test('a bulk insert with one invalid ttl inserts nothing', async () => {
	const documents = [{ customer: 'Ann' }, { customer: 'Bob', ttl: 1.5 }];

	await assert.rejects(
		db.insert(carts).values(documents.map((data) => ({ data }))),
		invalidTtl('1.5'),
	);
	assert.deepEqual(await customers(), []);
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
