import assert from "node:assert/strict";
import { test } from "node:test";
import { retrying } from "../src/documents";
import { Token } from "../src/entities";
import { database, refusal, travel, useDatabase } from "./support";

useDatabase();
const tokens = database.getRepository(Token);

// Functions, because TypeORM writes the generated key into the object that it inserts.
const login = () => ({ code: "4711", doc: { purpose: "login", ttl: 600 } });
const signUp = () => ({ code: "4711", doc: { purpose: "sign-up", ttl: 600 } });

test("upsert() replaces an expired document by a new one with a new key", async () => {
	const { id } = await tokens.save(login());
	await travel(601);
	const result = await tokens.upsert(signUp(), ["code"]);
	assert.notEqual(result.identifiers[0].id, id);
	assert.deepEqual((await tokens.find()).map(({ doc }) => doc.purpose), ["sign-up"]);
});

test("an upsert() with skipUpdateIfNoValuesChanged does not restart the countdown", async () => {
	await tokens.insert(login());
	await travel(500);
	await tokens.upsert(login(), { conflictPaths: ["code"], skipUpdateIfNoValuesChanged: true });
	await travel(601);
	assert.equal(await tokens.count(), 0);
});

test("orUpdate() and orIgnore() of the query builder replace expired documents, too", async () => {
	const insert = (token: ReturnType<typeof login>) => tokens.createQueryBuilder().insert().values(token);
	await insert(login()).execute();
	await insert(signUp()).orIgnore().execute();
	assert.deepEqual((await tokens.find()).map(({ id, doc }) => [id, doc.purpose]), [[1, "login"]]);
	await insert(signUp()).orUpdate(["doc"], ["code"]).execute();
	assert.deepEqual((await tokens.find()).map(({ id, doc }) => [id, doc.purpose]), [[1, "sign-up"]]);

	await travel(601);
	await insert(login()).orIgnore().execute();
	assert.deepEqual((await tokens.find()).map(({ doc }) => doc.purpose), ["login"]);

	await travel(1202);
	await insert(signUp()).orUpdate(["doc"], ["code"]).execute();
	const [{ id, doc }] = await tokens.find();
	assert.equal(doc.purpose, "sign-up");
	assert.notEqual(id, 1);
});

test("retrying() retries the upsert(), which then inserts", async () => {
	const { id } = await tokens.save(login());
	let attempts = 0;
	const result = await withSlowUpdates(() => retrying(async () => {
		// The failed statement has rolled back its clock; real time would not go back.
		await travel(attempts++ === 0 ? 0 : 601);
		return tokens.upsert(signUp(), ["code"]);
	}));
	assert.equal(attempts, 2);
	assert.notEqual(result.identifiers[0].id, id);
	assert.deepEqual((await tokens.find()).map(({ doc }) => doc.purpose), ["sign-up"]);
});

test("retrying() gives a transaction a new snapshot, in which the document has expired", async () => {
	const { id } = await tokens.save(login());
	let attempts = 0;
	const affected = await retrying(async () => {
		await travel(attempts++ === 0 ? 0 : 601);
		return database.transaction("REPEATABLE READ", async (manager) => {
			await manager.findBy(Token, { id });
			await travel(601, manager);
			return (await manager.update(Token, id, { doc: { purpose: "too late" } })).affected;
		});
	});
	assert.equal(attempts, 2, "the first attempt sees the document, but its update fails with 40001");
	assert.equal(affected, 0);
});

test("retrying() limits the number of attempts, and does not retry after other errors", async () => {
	let attempts = 0;
	const failing = (code: string) => () => {
		attempts++;
		return database.query(`DO $$ BEGIN RAISE 'no' USING ERRCODE = '${code}'; END $$`);
	};
	await assert.rejects(retrying(failing("40001")), refusal("40001", "no"));
	assert.equal(attempts, 3);
	await assert.rejects(retrying(failing("23505")), refusal("23505", "no"));
	assert.equal(attempts, 4);
});

/** Makes each UPDATE of a token take ten minutes, as if it waited for a row lock. */
async function withSlowUpdates<Result>(work: () => Promise<Result>): Promise<Result> {
	await database.query(`
		CREATE FUNCTION pass_time() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM set_config('ttl_docs.clock_offset', '601s', false);
			RETURN NEW;
		END $$;
		CREATE TRIGGER pass_time BEFORE UPDATE ON tokens FOR EACH ROW EXECUTE FUNCTION pass_time()`);
	try {
		return await work();
	} finally {
		await database.query("DROP FUNCTION pass_time CASCADE");
	}
}
