// drizzle-kit with collections, without and with the recipe in src/ttl.ts.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cp, readFile, rm, writeFile } from 'node:fs/promises';
import { after, beforeEach, test } from 'node:test';
import { promisify } from 'node:util';
import { sql } from 'drizzle-orm';
import { migrateToLatest } from '../src/migrate.ts';
import { sessions, users } from '../src/schema.ts';
import { db, emptyDatabase, refusal, travel } from './database.ts';

beforeEach(async () => {
	await rm('tmp/history', { recursive: true, force: true });
	await rm('tmp/pulled', { recursive: true, force: true });
	await emptyDatabase();
	await travel(0);
});
after(() => db.$client.end());

const NAIVE = '--config=test/naive/drizzle.config.ts';
const PULLED = '--config=test/pulled/drizzle.config.ts';

/** Runs drizzle-kit and returns its output.  Its exit status is 0 even if push fails. */
async function drizzleKit(...args: string[]) {
	const { stdout, stderr } = await promisify(execFile)('node_modules/.bin/drizzle-kit', args);
	return stdout + stderr;
}

/** Makes drizzle-kit write a migration to the test's folder. */
function generate(...args: string[]) {
	return drizzleKit('generate', '--dialect=postgresql', '--out=tmp/history', ...args);
}

/** Returns the path of the migration that generate() has written. */
function written(output: string) {
	return output.match(/tmp\/history\/\w+\.sql/)![0];
}

/** Makes the table sessions a collection whose schema.ts does not have the system columns. */
async function migrateNaively() {
	await generate('--schema=test/naive/schema.ts');
	await migrateToLatest(db, 'tmp/history');
	await db.execute(sql`select ttl_docs.adopt('sessions', 1800)`);
}

async function createSession() {
	const [user] = await db.insert(users).values({ email: 'ann@example.com' }).returning();
	await db.execute(sql`insert into sessions (user_id, data) values (${user!.id}, '{"page": "/"}')`);
}

/** Counts the sessions now and after half an hour. */
async function sessionsNowAndLater() {
	const now = await db.$count(sessions);
	await travel(1800);
	const later = await db.$count(sessions);
	await travel(0);
	return [now, later];
}

const EXPIRES = [1, 0];
const STAYS = [1, 1];

async function systemColumns() {
	const { rows } = await db.execute<{ name: string }>(sql`
		select attname as name from pg_attribute
		where attrelid = 'sessions'::regclass and attnum > 0 and attname like '\\_%' and not attisdropped
		order by attnum`);
	return rows.map(({ name }) => name);
}

test('migrate on an empty database creates working collections', async () => {
	await migrateToLatest(db);
	await createSession();

	assert.deepEqual(await systemColumns(), ['_ts', '_ttl', '_slot']);
	assert.deepEqual(await sessionsNowAndLater(), EXPIRES);
});

test('migrate again does nothing', async () => {
	await migrateToLatest(db);
	await createSession();
	await migrateToLatest(db);

	assert.deepEqual(await sessionsNowAndLater(), EXPIRES);
});

test('generate finds no changes', async () => {
	await cp('drizzle', 'tmp/history', { recursive: true });

	const output = await generate('--schema=src/schema.ts');
	assert.match(output, /No schema changes, nothing to migrate/);
});

test('without the recipe, push wants to drop the purge index and the system columns; ttl_docs refuses each', async () => {
	await migrateNaively();
	await createSession();

	const output = await drizzleKit('push', NAIVE, '--force', '--verbose');
	const statements = output.match(/^(DROP|ALTER) .*;$/gm)!;
	assert.deepEqual(statements, [
		'DROP INDEX "sessions__slot_idx";',
		'ALTER TABLE "sessions" DROP COLUMN "_ts";',
		'ALTER TABLE "sessions" DROP COLUMN "_ttl";',
		'ALTER TABLE "sessions" DROP COLUMN "_slot";',
	]);
	assert.match(output, /cannot drop the purge index of the collection "sessions"/);
	assert.doesNotMatch(output, /Changes applied/);
	for (const statement of statements) {
		await assert.rejects(
			db.execute(sql.raw(statement)),
			refusal('2BP01', /^cannot drop .* of the collection "sessions"/),
		);
	}
	assert.deepEqual(await systemColumns(), ['_ts', '_ttl', '_slot']);
	assert.deepEqual(await sessionsNowAndLater(), EXPIRES);
});

test('without the recipe, push does not ask while the table is empty; ttl_docs refuses the change', async () => {
	await migrateNaively();

	const output = await drizzleKit('push', NAIVE);
	assert.match(output, /cannot drop the purge index of the collection "sessions"/);
	await createSession();
	assert.deepEqual(await sessionsNowAndLater(), EXPIRES);
});

test('without the recipe, push drops the purge index while TTL is off; set_indexing() restores it', async () => {
	await migrateNaively();
	await db.execute(sql`select ttl_docs.set_default_ttl('sessions', null)`);

	assert.match(await drizzleKit('push', NAIVE), /cannot drop or rename column "_ts"/);
	await assert.rejects(
		db.execute(sql`select ttl_docs.set_default_ttl('sessions', 1800)`),
		refusal('55000', 'the collection "sessions" has lost its purge index'),
	);
	await db.execute(sql`select ttl_docs.set_indexing('sessions', 'consistent')`);
	await db.execute(sql`select ttl_docs.set_default_ttl('sessions', 1800)`);
	await createSession();
	assert.deepEqual(await sessionsNowAndLater(), EXPIRES);
});

test('with the recipe, push finds no changes', async () => {
	await migrateToLatest(db);
	await createSession();

	assert.match(await drizzleKit('push', '--force', '--verbose'), /No changes detected/);
	assert.deepEqual(await sessionsNowAndLater(), EXPIRES);
});

test('push into an empty database creates plain tables, which adopt() makes collections', async () => {
	assert.match(await drizzleKit('push'), /Changes applied/);
	await createSession();
	assert.deepEqual(await sessionsNowAndLater(), STAYS);

	await db.$client.query(await readFile('drizzle/0001_adopt_collections.sql', 'utf8'));
	assert.deepEqual(await sessionsNowAndLater(), EXPIRES);
	assert.match(await drizzleKit('push'), /No changes detected/);
});

test('pull writes the system columns and the purge index; push then finds no changes', async () => {
	await migrateToLatest(db);
	await createSession();

	await drizzleKit('pull', PULLED);
	const schema = await readFile('tmp/pulled/schema.ts', 'utf8');
	assert.match(schema, /ts: timestamp\("_ts", /);
	assert.match(schema, /index\("sessions__slot_idx"\)/);
	assert.doesNotMatch(schema, /adopt/);
	assert.match(await drizzleKit('push', PULLED), /No changes detected/);
	assert.deepEqual(await sessionsNowAndLater(), EXPIRES);
});

test('one migration adds the system columns to a table in use, the next one adopts the table', async () => {
	await generate('--schema=test/naive/schema.ts');
	await migrateToLatest(db, 'tmp/history');
	await createSession();

	await generate('--schema=src/schema.ts');
	const adopt = await generate('--schema=src/schema.ts', '--custom');
	await writeFile(written(adopt), `SELECT ttl_docs.adopt('sessions', 1800);\n`);
	await migrateToLatest(db, 'tmp/history');
	assert.deepEqual(await sessionsNowAndLater(), EXPIRES);
	assert.match(await drizzleKit('push'), /No changes detected/);
});

test('a table that is adopted before it gets the recipe needs no migration for the system columns', async () => {
	await migrateNaively();
	await createSession();

	const late = written(await generate('--schema=src/schema.ts'));
	await assert.rejects(
		migrateToLatest(db, 'tmp/history'),
		refusal('42701', 'column "_ts" of relation "sessions" already exists'),
	);

	const statements = (await readFile(late, 'utf8')).split('--> statement-breakpoint\n');
	const needed = statements.filter(
		(statement) => !/^ALTER TABLE "sessions" ADD COLUMN "_|^CREATE INDEX "sessions__slot_idx"/.test(statement),
	);
	assert.equal(needed.length, statements.length - 4);
	await writeFile(late, needed.join('--> statement-breakpoint\n'));
	await migrateToLatest(db, 'tmp/history');
	assert.match(await drizzleKit('push'), /No changes detected/);
	assert.deepEqual(await sessionsNowAndLater(), EXPIRES);
});
