// Through pgbouncer in transaction mode, where each transaction may use another server connection.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { sql } from 'drizzle-orm';
import { connect } from '../src/db.ts';
import { retrying } from '../src/retry.ts';
import { tokens } from '../src/schema.ts';
import { putToken, redeemToken } from '../src/tokens.ts';
import { refusal, travelInTransaction, useMigratedDatabase } from './database.ts';

useMigratedDatabase();

const pool = { host: process.env.POOL_HOST, port: Number(process.env.POOL_PORT) };
const pooled = connect(pool);
after(() => pooled.$client.end());

test('reads and writes need no settings, even if they run concurrently', async () => {
	const codes = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];
	const put = (code: string) => putToken(pooled, { code, data: { purpose: 'login' } });
	await Promise.all(codes.map((code) => retrying(() => put(code))));

	assert.equal(await pooled.$count(tokens), codes.length);
	const redeemed = await Promise.all(codes.map((code) => redeemToken(pooled, code)));
	assert.deepEqual(redeemed.map((token) => token?.code), codes);
	assert.equal(await pooled.$count(tokens), 0);
});

test('documents expire', async () => {
	await putToken(pooled, { code: 'a', data: { purpose: 'login', ttl: 60 } });

	await pooled.transaction(async (tx) => {
		assert.equal(await tx.$count(tokens), 1);
		await travelInTransaction(tx, 60);
		assert.equal(await tx.$count(tokens), 0);
		assert.equal(await redeemToken(tx, 'a'), undefined);
	});
	assert.equal(await pooled.$count(tokens), 1);
});

test('an upsert replaces an expired document', async () => {
	const first = await putToken(pooled, { code: 'a', data: { purpose: 'login', ttl: 60 } });

	const second = await retrying(() =>
		pooled.transaction(async (tx) => {
			await travelInTransaction(tx, 60);
			return putToken(tx, { code: 'a', data: { purpose: 'reset' } });
		}),
	);
	assert.notEqual(second.id, first.id);
});

test('.prepare() with a name does not work: another server connection does not have the statement', async (t) => {
	const client = connect({ ...pool, max: 1 });
	t.after(() => client.$client.end());
	// The server connections are older than this test, and may have statements with other names.
	const name = `tokens_${randomUUID()}`;
	const allTokens = client.select().from(tokens).prepare(name);
	assert.deepEqual(await allTokens.execute(), []);

	await pooled.transaction(async (tx) => {
		// pgbouncer assigns the connection that was used last, so this occupies the one with the statement.
		await tx.execute(sql`select 1`);
		await assert.rejects(
			allTokens.execute(),
			refusal('26000', `prepared statement "${name}" does not exist`),
		);
	});
});
