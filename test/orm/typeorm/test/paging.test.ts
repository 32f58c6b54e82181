import assert from "node:assert/strict";
import { test } from "node:test";
import { MoreThan } from "typeorm";
import { Token } from "../src/entities";
import { database, travel, useDatabase } from "./support";

useDatabase();
const tokens = database.getRepository(Token);

/** Inserts ten tokens; those with an odd id expire after a minute. */
async function tenTokens(): Promise<void> {
	await tokens.insert(Array.from({ length: 10 }, (_, i) => (
		{ code: `code ${i + 1}`, doc: { purpose: "login", ttl: i % 2 === 0 ? 60 : 600 } }
	)));
}

const ids = (page: Token[]) => page.map(({ id }) => id);

test("counts and aggregates leave out expired documents", async () => {
	await tenTokens();
	assert.equal(await tokens.count(), 10);
	await travel(61);
	assert.equal(await tokens.count(), 5);
	assert.equal(await tokens.maximum("id"), 10);
	assert.equal(await tokens.minimum("id"), 2);
});

test("pages of findAndCount() are full, and their total is right", async () => {
	await tenTokens();
	await travel(61);
	const page = async (skip: number) => {
		const [found, total] = await tokens.findAndCount({ order: { id: "ASC" }, skip, take: 2 });
		return [ids(found), total];
	};
	assert.deepEqual(await page(0), [[2, 4], 5]);
	assert.deepEqual(await page(2), [[6, 8], 5]);
	assert.deepEqual(await page(4), [[10], 5]);
});

test("pages by key continue after a document that has expired", async () => {
	await tenTokens();
	const after = (id: number) => tokens.find({ where: { id: MoreThan(id) }, order: { id: "ASC" }, take: 3 });
	assert.deepEqual(ids(await after(0)), [1, 2, 3]);
	await travel(61);
	assert.deepEqual(ids(await after(3)), [4, 6, 8]);
	assert.deepEqual(ids(await after(8)), [10]);
});

test("in a REPEATABLE READ transaction, page and total have the same instant", async () => {
	await tenTokens();
	await database.transaction("REPEATABLE READ", async (manager) => {
		const page = await manager.find(Token, { order: { id: "ASC" }, take: 2 });
		await travel(61, manager);
		assert.deepEqual(ids(page), [1, 2]);
		assert.equal(await manager.count(Token), 10);
	});
});
