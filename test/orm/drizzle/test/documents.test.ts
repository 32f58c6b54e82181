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

/** The answer of the server to a document with this ttl. */
function invalidTtl(ttl: string, table = 'carts') {
	return refusal('22023', `invalid "ttl" in a document of "${table}": ${ttl}`);
}

test('a document without a ttl, or with null, lives as long as the collection says', async () => {
	const none = await createCart('Ann');
	const unset = await createCart('Bob', null);

	assert.equal(await secondsToLive(none.id), HOUR);
	assert.equal(await secondsToLive(unset.id), HOUR);
	await travel(HOUR - 60);
	assert.deepEqual(await customers(), ['Ann', 'Bob']);
	await travel(HOUR);
	assert.deepEqual(await customers(), []);
});

test('a document can have a ttl of its own', async () => {
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

test('the server sets _ts, and RETURNING brings it back', async () => {
	const earlier = new Date();
	const cart = await createCart('Ann');

	assert.ok(cart._ts >= earlier && cart._ts <= new Date());
});

test('what a client puts into the system columns is not kept', async () => {
	const earlier = new Date();
	const [cart] = await db
		.insert(carts)
		.values({ data: { customer: 'Ann' }, _ts: new Date(0), _ttl: 7, _slot: 7 })
		.returning();

	assert.ok(cart!._ts >= earlier);
	assert.equal(cart!._ttl, null);
	assert.notEqual(cart!._slot, 7);
});

test('a row can be sent as JSON with its system columns', async () => {
	const cart = await createCart('Ann');

	assert.equal(JSON.parse(JSON.stringify(cart)).data.customer, 'Ann');
});

test('a bulk insert takes documents of every kind', async () => {
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

test('a ttl of 0 is an error with the message of the server, and nothing is written', async () => {
	await assert.rejects(createCart('Ann', 0), invalidTtl('0'));

	assert.deepEqual(await customers(), []);
});

test('a ttl that is a string is an error for TypeScript and for the server', async () => {
	await assert.rejects(
		// @ts-expect-error: the type of the document says that a ttl is a number
		db.insert(tokens).values({ code: 'a', data: { purpose: 'login', ttl: '60' } }),
		invalidTtl('"60"', 'tokens'),
	);
});

test('one invalid ttl fails a bulk insert as a whole', async () => {
	const documents = [{ customer: 'Ann' }, { customer: 'Bob', ttl: 1.5 }];

	await assert.rejects(
		db.insert(carts).values(documents.map((data) => ({ data }))),
		invalidTtl('1.5'),
	);
	assert.deepEqual(await customers(), []);
});

test('an invalid ttl fails its transaction, and the connection goes on', async () => {
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

test('an invalid ttl fails only a nested transaction, which is a savepoint', async () => {
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
