import assert from 'node:assert/strict';
import { test } from 'node:test';
import { count, eq, gt } from 'drizzle-orm';
import { carts, cartItems } from '../src/schema.ts';
import { db, refusal, travel, useMigratedDatabase } from './database.ts';

useMigratedDatabase();

async function createCart(customer: string, ttl?: number) {
	const [cart] = await db.insert(carts).values({ data: { customer, ttl } }).returning();
	return cart!;
}

async function addItem(cartId: number, sku: string, ttl?: number) {
	const [item] = await db.insert(cartItems).values({ cartId, data: { sku, ttl } }).returning();
	return item!;
}

test('an eager load skips expired items', async () => {
	const cart = await createCart('Ann');
	await addItem(cart.id, 'tea', 60);
	const coffee = await addItem(cart.id, 'coffee');
	await travel(60);

	const found = await db.query.carts.findMany({ with: { items: true } });
	assert.deepEqual(found, [{ ...cart, items: [coffee] }]);
});

test('an eager load finds a cart whose items have all expired', async () => {
	const cart = await createCart('Ann');
	await addItem(cart.id, 'tea', 60);
	await travel(60);

	const found = await db.query.carts.findMany({ with: { items: true } });
	assert.deepEqual(found, [{ ...cart, items: [] }]);
});

test('a join skips expired rows on either side', async () => {
	const [expiring, lasting] = [await createCart('Ann', 60), await createCart('Bob')];
	await addItem(expiring.id, 'tea');
	await addItem(lasting.id, 'milk', 60);
	await addItem(lasting.id, 'coffee');
	await travel(60);

	const rows = await db
		.select({ cart: carts.data, item: cartItems.data })
		.from(carts)
		.innerJoin(cartItems, eq(cartItems.cartId, carts.id));
	assert.deepEqual(rows, [{ cart: { customer: 'Bob' }, item: { sku: 'coffee' } }]);
});

test('a cart with live items cannot be deleted', async () => {
	const cart = await createCart('Ann');
	await addItem(cart.id, 'tea');

	await assert.rejects(
		db.delete(carts).where(eq(carts.id, cart.id)),
		refusal('23503', /violates foreign key constraint "cart_items_cart_id_carts_id_fk"/),
	);
});

test('a cart whose items have expired can be deleted', async () => {
	const cart = await createCart('Ann');
	await addItem(cart.id, 'tea', 60);
	await travel(60);

	const { rowCount } = await db.delete(carts).where(eq(carts.id, cart.id));
	assert.equal(rowCount, 1);
});

test('counts leave out expired carts', async () => {
	for (const ttl of [60, 120, 120, -1]) {
		await createCart('Ann', ttl);
	}

	assert.equal(await db.$count(carts), 4);
	await travel(60);
	assert.equal(await db.$count(carts), 3);
	assert.equal(await db.$count(carts, gt(carts._ttl, 0)), 2);
	await travel(120);
	assert.deepEqual(await db.select({ all: count() }).from(carts), [{ all: 1 }]);
});

/** Creates seven carts, of which every other one expires; 1, 3, 5 and 7 stay live. */
async function createCartsOfWhichSomeExpire() {
	const documents = [1, 2, 3, 4, 5, 6, 7].map((n) => ({
		customer: `customer ${n}`,
		ttl: n % 2 === 0 ? 60 : -1,
	}));
	await db.insert(carts).values(documents.map((data) => ({ data })));
	await travel(60);
}

test('pages by limit and offset are full, without expired carts', async () => {
	await createCartsOfWhichSomeExpire();
	const page = async (offset: number) => {
		const rows = await db.query.carts.findMany({ orderBy: carts.id, limit: 3, offset });
		return rows.map(({ id }) => id);
	};

	assert.deepEqual(await page(0), [1, 3, 5]);
	assert.deepEqual(await page(3), [7]);
});

test('pages by key are full, and continue after a cart that has expired', async () => {
	await createCartsOfWhichSomeExpire();
	const pageAfter = async (id: number) => {
		const rows = await db.select().from(carts).where(gt(carts.id, id)).orderBy(carts.id).limit(2);
		return rows.map(({ id }) => id);
	};

	assert.deepEqual(await pageAfter(0), [1, 3]);
	await db.update(carts).set({ data: { customer: 'in a hurry', ttl: 1 } }).where(eq(carts.id, 3));
	await travel(61);
	assert.deepEqual(await pageAfter(3), [5, 7]);
	assert.deepEqual(await pageAfter(0), [1, 5]);
});
