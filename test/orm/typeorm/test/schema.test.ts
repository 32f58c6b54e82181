import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { Column, DataSource, Entity, PrimaryGeneratedColumn } from "typeorm";
import { Collection } from "../src/collection";
import { Token } from "../src/entities";
import { NaiveToken } from "./naive/data-source";
import { connection, database, inSession, refusal, schema, travel, typeorm, useDatabase } from "./support";

useDatabase();
const tokens = database.getRepository(Token);

const APP = join(__dirname, "../src/data-source.js");
const NAIVE = join(__dirname, "naive/data-source.js");

/** Returns the statements that synchronize(), schema:sync or a generated migration would run. */
async function pendingChanges(dataSource: DataSource): Promise<string[]> {
	const { upQueries } = await dataSource.driver.createSchemaBuilder().log();
	return upQueries.map(({ query }) => query);
}

async function assertDocumentsExpire(): Promise<void> {
	await tokens.insert({ code: "abc", doc: { purpose: "login", ttl: 60 } });
	assert.equal(await tokens.count(), 1);
	await travel(61);
	assert.equal(await tokens.count(), 0);
}

test("without the system columns in the model, TypeORM wants to drop them and the purge index", async () => {
	await inSession(connection({ entities: [NaiveToken] }), async (naive) => {
		assert.deepEqual(await pendingChanges(naive), [
			`DROP INDEX "${schema}"."tokens__slot_idx"`,
			'ALTER TABLE "tokens" DROP COLUMN "_ts"',
			'ALTER TABLE "tokens" DROP COLUMN "_ttl"',
			'ALTER TABLE "tokens" DROP COLUMN "_slot"',
		]);
	});
	const { code, output } = await typeorm("migration:generate", "next", "--check", "--dataSource", NAIVE);
	assert.equal(code, 1);
	assert.match(output, /ALTER TABLE "tokens" DROP COLUMN "_ts"/);
});

test("without the system columns in the model, synchronize() fails: ttl_docs refuses each change", async () => {
	await inSession(connection({ entities: [NaiveToken] }), async (naive) => {
		const indexIsNeeded = refusal("2BP01", /^cannot drop the purge index of the collection "tokens"/);
		await assert.rejects(naive.synchronize(), indexIsNeeded);

		const [dropIndex, ...dropColumns] = await pendingChanges(naive);
		await assert.rejects(naive.query(dropIndex), indexIsNeeded);
		assert.equal(dropColumns.length, 3);
		for (const drop of dropColumns) {
			await assert.rejects(
				naive.query(drop),
				refusal("2BP01", /^cannot drop or rename column "_(ts|ttl|slot)" of the collection "tokens"$/),
			);
		}
	});
	await assertDocumentsExpire();
});

test("a model without the system columns can read and write", async () => {
	await inSession(connection({ entities: [NaiveToken] }), async (naive) => {
		const naiveTokens = naive.getRepository(NaiveToken);
		const { id } = await naiveTokens.save({ code: "abc", doc: { ttl: 60 } });
		await naiveTokens.save({ id, code: "def" });
		assert.equal((await naiveTokens.findOneByOrFail({ id })).code, "def");
		await travel(61, naive);
		assert.equal(await naiveTokens.findOneBy({ id }), null);
	});
});

test("ttl_docs refuses to rename a system column that is missing in the model to a new column", async () => {
	@Collection("carts")
	class CartWithTotal {
		@PrimaryGeneratedColumn("identity") id!: number;
		@Column("jsonb") doc!: object;
		@Column("integer") version!: number;
		@Column({ type: "timestamptz", default: () => "now()" }) _ts!: Date;
		@Column({ type: "integer", nullable: true }) _ttl?: number;
		@Column({ type: "bigint", nullable: true }) total?: string;
	}
	await inSession(connection({ entities: [CartWithTotal] }), async (session) => {
		assert.equal((await pendingChanges(session))[0], 'ALTER TABLE "carts" RENAME COLUMN "_slot" TO "total"');
		await assert.rejects(
			session.synchronize(),
			refusal("2BP01", 'cannot drop or rename column "_slot" of the collection "carts"'),
		);
	});
});

test("with the recipe, TypeORM finds no changes", async () => {
	assert.deepEqual(await pendingChanges(database), []);
	await database.synchronize();

	const check = await typeorm("migration:generate", "next", "--check", "--dataSource", APP);
	assert.deepEqual(check, { code: 0, output: "No changes in database schema were found\n" });
	const log = await typeorm("schema:log", "--dataSource", APP);
	assert.match(log.output, /^Your schema is up to date/);
	assert.equal(log.code, 0);
	await assertDocumentsExpire();
});

test("with the recipe, TypeORM finds a new column of the model and no other changes", async () => {
	@Collection("tokens")
	class TokenWithHint extends Token {
		@Column("text", { nullable: true }) hint?: string;
	}
	await inSession(connection({ entities: [TokenWithHint] }), async (session) => {
		assert.deepEqual(await pendingChanges(session), ['ALTER TABLE "tokens" ADD "hint" text']);
		await session.synchronize();
		assert.deepEqual(await pendingChanges(session), []);
		await session.query("ALTER TABLE tokens DROP COLUMN hint");
	});
	await assertDocumentsExpire();
});

test("without the comments of the recipe, TypeORM only wants to remove the comments", async () => {
	@Collection("carts")
	class UncommentedCart {
		@PrimaryGeneratedColumn("identity") id!: number;
		@Column("jsonb") doc!: object;
		@Column("integer") version!: number;
		@Column({ type: "timestamptz", default: () => "now()" }) _ts!: Date;
		@Column({ type: "integer", nullable: true }) _ttl?: number;
		@Column({ type: "bigint", nullable: true, default: "1000000000000000" }) _slot?: string;
	}
	await inSession(connection({ entities: [UncommentedCart] }), async (session) => {
		assert.deepEqual(await pendingChanges(session), [
			'COMMENT ON COLUMN "carts"."_ts" IS NULL',
			'COMMENT ON COLUMN "carts"."_ttl" IS NULL',
			'COMMENT ON COLUMN "carts"."_slot" IS NULL',
		]);
	});
});

test("with synchronize: false for the table, TypeORM finds no changes", async () => {
	@Entity("tokens", { synchronize: false })
	class UnmanagedToken extends NaiveToken {}
	await inSession(connection({ entities: [UnmanagedToken] }), async (session) => {
		assert.deepEqual(await pendingChanges(session), []);
	});
});
