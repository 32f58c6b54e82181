// Adopts a table while the application uses it.
import assert from 'node:assert/strict';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { after, beforeEach, test } from 'node:test';
import { sql } from 'drizzle-orm';
import { adoptOnline } from '../src/adopt-online.ts';
import { migrateToLatest } from '../src/migrate.ts';
import { db, emptyDatabase, travel } from './database.ts';

// The migration for new databases, which have the table but not its rows.
const MIGRATION = `SELECT ttl_docs.adopt('visits', 1800)
 WHERE NOT EXISTS (SELECT FROM ttl_docs.collections WHERE collection = 'visits'::regclass);`;

beforeEach(async () => {
	await travel(0);
	await emptyDatabase();
	await db.execute(sql`create table visits (id serial primary key, doc jsonb not null)`);
	await db.execute(sql`insert into visits (doc) values ('{"page": "/"}'), ('{"ttl": -1}')`);
	await rm('tmp/online', { recursive: true, force: true });
	await mkdir('tmp/online/meta', { recursive: true });
	await writeFile('tmp/online/0000_adopt_visits.sql', MIGRATION);
	const entry = { idx: 0, version: '7', when: 1, tag: '0000_adopt_visits', breakpoints: true };
	const journal = { version: '7', dialect: 'postgresql', entries: [entry] };
	await writeFile('tmp/online/meta/_journal.json', JSON.stringify(journal));
});
after(() => db.$client.end());

async function visitsNowAndLater() {
	const count = async () => (await db.execute(sql`select count(*)::int as n from visits`)).rows[0]!.n;
	const now = await count();
	await travel(1800);
	return [now, await count()];
}

test('adopt_concurrently() runs before the migration, which then does nothing', async () => {
	await adoptOnline(db);
	await migrateToLatest(db, 'tmp/online');
	assert.deepEqual(await visitsNowAndLater(), [2, 1]);
});

test('in a new database, the migration adopts the table', async () => {
	await migrateToLatest(db, 'tmp/online');
	assert.deepEqual(await visitsNowAndLater(), [2, 1]);
});
