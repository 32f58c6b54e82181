import assert from "node:assert/strict";
import { join } from "node:path";
import { afterEach, test } from "node:test";
import { Cart, CartItem, Session, Token, User } from "../src/entities";
import { connection, database, inSession, schema, travel, typeorm, useDatabase } from "./support";

useDatabase();
afterEach(async () => {
	await database.dropDatabase();
	await database.runMigrations();
});

const APP = join(__dirname, "../src/data-source.js");

/** Returns the collections of this test file with their DefaultTTLs. */
async function collections(): Promise<Record<string, number>> {
	const rows = await database.query(
		`SELECT relname AS name, default_ttl FROM ttl_docs.collections
		 JOIN pg_class ON pg_class.oid = collection WHERE relnamespace = $1::regnamespace ORDER BY relname`,
		[schema],
	);
	return Object.fromEntries(rows.map((row: any) => [row.name, row.default_ttl]));
}

const ALL = { cart_items: 3600, carts: 86400, sessions: 1800, tokens: -1 };

async function assertCartsExpire(): Promise<void> {
	const { id } = await database.getRepository(Cart).save({ doc: {} });
	await travel(86401);
	assert.equal(await database.getRepository(Cart).findOneBy({ id }), null);
}

test("dropSchema and migrationsRun, a common setup of tests, create working collections", async () => {
	await inSession(connection({ dropSchema: true, migrationsRun: true }), async () => {
		assert.deepEqual(await collections(), ALL);
		await assertCartsExpire();
	});
});

test("migration:run on an empty database creates working collections, migration:revert drops them", async () => {
	await database.dropDatabase();
	assert.deepEqual(await collections(), {});

	assert.equal((await typeorm("migration:run", "--dataSource", APP)).code, 0);
	assert.deepEqual(await collections(), ALL);

	assert.equal((await typeorm("migration:revert", "--dataSource", APP)).code, 0);
	assert.deepEqual(await collections(), {});

	assert.equal((await typeorm("migration:run", "--dataSource", APP)).code, 0);
	await assertCartsExpire();
});

test("schema:drop drops collections like any other table", async () => {
	assert.equal((await typeorm("schema:drop", "--dataSource", APP)).code, 0);
	assert.deepEqual(await collections(), {});
	await database.runMigrations();
});

test("synchronize() on an empty database creates plain tables, in which nothing expires", async () => {
	await database.synchronize(true);
	assert.deepEqual(await collections(), {});

	const carts = database.getRepository(Cart);
	const { id } = await carts.save({ doc: {} });
	await travel(86401);
	assert.equal((await carts.findOneByOrFail({ id })).id, id);
});

test("adopt() makes tables from synchronize() collections, with the columns they have already", async () => {
	await database.synchronize(true);
	for (const [table, ttl] of Object.entries(ALL)) {
		await database.query("SELECT ttl_docs.adopt($1, $2::int)", [table, ttl]);
	}
	assert.deepEqual(await collections(), ALL);
	assert.deepEqual((await database.driver.createSchemaBuilder().log()).upQueries, []);
	await assertCartsExpire();
});

test("a test can run in a transaction; the rollback also resets the clock", async () => {
	const runner = database.createQueryRunner();
	await runner.startTransaction();
	try {
		await runner.manager.insert(Token, { code: "abc", doc: { purpose: "login", ttl: 60 } });
		await travel(61, runner);
		assert.equal(await runner.manager.count(Token), 0);
		await runner.manager.insert(Token, { code: "abc", doc: { purpose: "sign-up" } });
	} finally {
		await runner.rollbackTransaction();
		await runner.release();
	}
	assert.equal(await database.getRepository(Token).count(), 0);
	assert.deepEqual(await database.query("SHOW ttl_docs.clock_offset"), [{ "ttl_docs.clock_offset": "0" }]);
});

test("a fixture can be written in the past, with the clock moved back", async () => {
	const user = await database.getRepository(User).save({ email: "ann@example.com" });
	const sessions = database.getRepository(Session);
	await travel(-1000);
	const old = await sessions.save({ user, data: { page: "half over" } });
	await travel(-3600);
	await sessions.save({ user, data: { page: "over" } });
	await travel(0);
	assert.ok(old._ts.getTime() < Date.now() - 999_000);
	assert.deepEqual((await sessions.find()).map(({ data }) => data.page), ["half over"]);
});

test("clear() removes expired documents, too", async () => {
	const carts = database.getRepository(Cart);
	const cart = await carts.save({ doc: {} });
	await database.getRepository(CartItem).insert({ cart, doc: { sku: "lamp" } });
	await travel(86401);
	await carts.clear({ cascade: true });
	await travel(0);
	assert.equal(await carts.count(), 0);
	assert.equal(await database.getRepository(CartItem).count(), 0);
});
