import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { EntityManager } from "typeorm";
import { retrying, touch } from "../src/documents";
import { Session, Token, User } from "../src/entities";
import { connection, schema, useDatabase } from "./support";

useDatabase();

// pgbouncer in transaction mode. TypeORM needs no setting for it, because it uses no named
// prepared statements. But the connection cannot have its own options, such as a search_path.
const pooled = connection({
	host: process.env.POOL_HOST,
	port: Number(process.env.POOL_PORT),
	schema,
	poolSize: 8,
	extra: {},
});
before(() => pooled.initialize());
after(() => pooled.destroy());

/** Moves the clock for one transaction. A SET would stay in a connection that other clients share. */
function later<Result>(seconds: number, work: (manager: EntityManager) => Promise<Result>): Promise<Result> {
	return pooled.transaction(async (manager) => {
		await manager.query("SELECT set_config('ttl_docs.clock_offset', $1, true)", [`${seconds}s`]);
		return work(manager);
	});
}

test("through pgbouncer: writes, reads and expiry", async () => {
	const tokens = pooled.getRepository(Token);
	const { id } = await tokens.save({ code: "abc", doc: { purpose: "login", ttl: 60 } });
	assert.equal((await tokens.findOneByOrFail({ id })).code, "abc");
	await later(61, async (manager) => {
		assert.equal(await manager.findOneBy(Token, { id }), null);
		assert.equal((await manager.update(Token, id, { code: "def" })).affected, 0);
		await manager.insert(Token, { code: "abc", doc: { purpose: "sign-up", ttl: 600 } });
	});
	assert.deepEqual((await tokens.find()).map(({ doc }) => doc.purpose), ["sign-up"]);
});

test("through pgbouncer: sliding expiry", async () => {
	const user = await pooled.getRepository(User).save({ email: "ann@example.com" });
	const { id } = await pooled.getRepository(Session).save({ user, data: {} });
	assert.equal(await later(1700, (manager) => touch(manager.getRepository(Session), { id })), true);
	assert.equal(await later(3400, (manager) => manager.existsBy(Session, { id })), true);
	assert.equal(await later(3600, (manager) => manager.existsBy(Session, { id })), false);
});

test("through pgbouncer: more clients than server connections, each with its own clock", async () => {
	const tokens = pooled.getRepository(Token);
	await tokens.insert({ code: "abc", doc: { purpose: "login", ttl: 60 } });
	const counts = await Promise.all(Array.from({ length: 40 }, (_, i) => (
		i % 2 === 0 ? tokens.count() : later(61, (manager) => manager.count(Token))
	)));
	assert.deepEqual(counts, Array.from({ length: 40 }, (_, i) => (i % 2 === 0 ? 1 : 0)));
});

test("through pgbouncer: concurrent upserts of one key", async () => {
	const tokens = pooled.getRepository(Token);
	await later(-3600, (manager) => manager.insert(Token, { code: "abc", doc: { purpose: "expired", ttl: 60 } }));
	await Promise.all(Array.from({ length: 20 }, (_, i) => (
		retrying(() => tokens.upsert({ code: "abc", doc: { purpose: `login ${i}`, ttl: 600 } }, ["code"]))
	)));
	assert.equal(await tokens.count(), 1);
});

test("through pgbouncer: no prepared statements are left in the server", async () => {
	await pooled.getRepository(Token).findBy({ code: "abc" });
	assert.deepEqual(await pooled.query("SELECT name FROM pg_prepared_statements"), []);
});
