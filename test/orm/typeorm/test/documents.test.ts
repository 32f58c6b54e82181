import assert from "node:assert/strict";
import { test } from "node:test";
import { EntityNotFoundError } from "typeorm";
import { Cart, Session, Token, User } from "../src/entities";
import { connection, database, inSession, refusal, travel, useDatabase } from "./support";

useDatabase();
const users = database.getRepository(User);
const sessions = database.getRepository(Session);
const tokens = database.getRepository(Token);
const carts = database.getRepository(Cart);

test("save() returns the server's _ts after an insert and after an update", async () => {
	const cart = await carts.save({ doc: { note: "first" } });
	assert.deepEqual(cart._ts, (await carts.findOneByOrFail({ id: cart.id }))._ts);
	const inserted = cart._ts;

	await travel(100);
	const updated = await carts.save({ id: cart.id, doc: { note: "second" } });
	assert.ok(updated._ts.getTime() >= inserted.getTime() + 100_000);
	assert.deepEqual(updated._ts, (await carts.findOneByOrFail({ id: cart.id }))._ts);
});

test("the server replaces a _ts from the client", async () => {
	const longAgo = new Date("2001-01-01");
	const saved = await carts.save({ doc: {}, _ts: longAgo });
	assert.notDeepEqual(saved._ts, longAgo);

	await database.query("UPDATE carts SET _ts = $1 WHERE id = $2", [longAgo, saved.id]);
	assert.ok((await carts.findOneByOrFail({ id: saved.id }))._ts >= saved._ts);
});

test("findOneByOrFail() of an expired document throws EntityNotFoundError, and existsBy() returns false", async () => {
	const { id } = await tokens.save({ code: "abc", doc: { purpose: "login", ttl: 60 } });
	await travel(61);
	await assert.rejects(tokens.findOneByOrFail({ id }), EntityNotFoundError);
	assert.equal(await tokens.existsBy({ code: "abc" }), false);
	assert.equal(await tokens.createQueryBuilder("token").where({ code: "abc" }).getOne(), null);
});

test("save() of an array writes in chunks", async () => {
	const user = await users.save({ email: "ann@example.com" });
	const many = Array.from({ length: 25 }, (_, page) => sessions.create({ user, data: { page: `/${page}` } }));
	await sessions.save(many, { chunk: 10 });
	assert.equal(await sessions.count(), 25);
	await travel(1860);
	assert.equal(await sessions.count(), 0);
});

test("an invalid ttl throws QueryFailedError with the server's hint", async () => {
	await assert.rejects(
		carts.save({ doc: { ttl: 0 } }),
		refusal("22023", 'invalid "ttl" in a document of "carts": 0', /^A ttl is an integer from 1 to 2147483647 /),
	);
});

test("an invalid ttl in a nested transaction (a savepoint) does not abort the outer transaction", async () => {
	await database.transaction(async (manager) => {
		await manager.save(Cart, { doc: { note: "before" } });
		await assert.rejects(
			manager.transaction((nested) => nested.save(Cart, { doc: { ttl: 1.5 } })),
			refusal("22023", 'invalid "ttl" in a document of "carts": 1.5'),
		);
		await manager.save(Cart, { doc: { note: "after" } });
	});
	const kept = await carts.find({ order: { id: "ASC" } });
	assert.deepEqual(kept.map(({ doc }) => doc.note), ["before", "after"]);
});

test("TypeORM's query cache returns expired documents", async () => {
	await tokens.save({ code: "abc", doc: { purpose: "login", ttl: 60 } });
	const find = (cache: boolean, secondsLater: number) =>
		inSession(connection({ cache: true, poolSize: 2 }, secondsLater), async (session) => {
			// Creates the table of the cache if it does not exist. There is nothing else to synchronize.
			await session.synchronize();
			return (await session.getRepository(Token).find({ cache: cache && 60_000 })).length;
		});
	assert.equal(await find(true, 0), 1);
	assert.equal(await find(true, 61), 1, "so do not use the cache for collections");
	assert.equal(await find(false, 61), 0);
	await database.query('DROP TABLE "query-result-cache"');
});
