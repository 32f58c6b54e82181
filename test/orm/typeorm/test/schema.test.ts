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

/** What synchronize(), schema:sync or a generated migration would do. */
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

test("a model without the system columns: TypeORM wants to drop them, and the purge index", async () => {
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

test("a model without the system columns: ttl_docs refuses each change, so synchronize() fails", async () => {
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

test("a model without the system columns reads and writes all the same", async () => {
	await inSession(connection({ entities: [NaiveToken] }), async (naive) => {
		const naiveTokens = naive.getRepository(NaiveToken);
		const { id } = await naiveTokens.save({ code: "abc", doc: { ttl: 60 } });
		await naiveTokens.save({ id, code: "def" });
		assert.equal((await naiveTokens.findOneByOrFail({ id })).code, "def");
		await travel(61, naive);
		assert.equal(await naiveTokens.findOneBy({ id }), null);
	});
});

test("a model with some of them: TypeORM would rename the missing one to a new column; refused, too", async () => {
	@Collection("carts")
	class CartWithTotal {
		@PrimaryGeneratedColumn("identity") id!: number;
		@Column("jsonb") doc!: object;
		@Column("integer") version!: number;
		@Column({ type: "timestamptz", default: () => "clock_timestamp()" }) _ts!: Date;
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

test("with the recipe: TypeORM finds nothing to do", async () => {
	assert.deepEqual(await pendingChanges(database), []);
	await database.synchronize();

	const check = await typeorm("migration:generate", "next", "--check", "--dataSource", APP);
	assert.deepEqual(check, { code: 0, output: "No changes in database schema were found\n" });
	const log = await typeorm("schema:log", "--dataSource", APP);
	assert.match(log.output, /^Your schema is up to date/);
	assert.equal(log.code, 0);
	await assertDocumentsExpire();
});

test("with the recipe: a new column is all that a change of the model brings", async () => {
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

test("a recipe without the comments: TypeORM wants to delete those, and nothing else", async () => {
	@Collection("carts")
	class UncommentedCart {
		@PrimaryGeneratedColumn("identity") id!: number;
		@Column("jsonb") doc!: object;
		@Column("integer") version!: number;
		@Column({ type: "timestamptz", default: () => "clock_timestamp()" }) _ts!: Date;
		@Column({ type: "integer", nullable: true }) _ttl?: number;
		@Column({ type: "bigint", nullable: true }) _slot?: string;
	}
	await inSession(connection({ entities: [UncommentedCart] }), async (session) => {
		assert.deepEqual(await pendingChanges(session), [
			'COMMENT ON COLUMN "carts"."_ts" IS NULL',
			'COMMENT ON COLUMN "carts"."_ttl" IS NULL',
			'COMMENT ON COLUMN "carts"."_slot" IS NULL',
		]);
	});
});

test("the other recipe: a table that TypeORM is to leave alone altogether", async () => {
	@Entity("tokens", { synchronize: false })
	class UnmanagedToken extends NaiveToken {}
	await inSession(connection({ entities: [UnmanagedToken] }), async (session) => {
		assert.deepEqual(await pendingChanges(session), []);
	});
});
