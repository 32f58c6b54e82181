import assert from 'node:assert/strict';
import { test } from 'node:test';
import { eq, sql } from 'drizzle-orm';
import { retrying } from '../src/retry.ts';
import { tokens } from '../src/schema.ts';
import { putToken, redeemToken } from '../src/tokens.ts';
import { db, inThePast, refusal, travel, useMigratedDatabase } from './database.ts';

useMigratedDatabase();

const login = { code: 'abc', data: { purpose: 'login', ttl: 60 } };
const reset = { code: 'abc', data: { purpose: 'reset', ttl: 60 } };

async function createToken(token: typeof login) {
	const [created] = await db.insert(tokens).values(token).returning();
	return created!;
}

test('an update can take the unique key of an expired token', async () => {
	await inThePast(60, () => createToken(login));
	const { id } = await createToken({ ...reset, code: 'xyz' });

	await db.update(tokens).set({ code: 'abc' }).where(eq(tokens.id, id));
	assert.equal((await db.query.tokens.findFirst({ where: eq(tokens.code, 'abc') }))?.id, id);
});

test('a live token can be redeemed once, an expired token cannot', async () => {
	await createToken(login);
	assert.equal((await redeemToken(db, 'abc'))?.data.purpose, 'login');
	assert.equal(await redeemToken(db, 'abc'), undefined);

	await createToken(login);
	await travel(60);
	assert.equal(await redeemToken(db, 'abc'), undefined);
});

test('onConflictDoUpdate updates a live token', async () => {
	const live = await createToken(login);
	const put = await retrying(() => putToken(db, reset));

	assert.equal(put.id, live.id);
	assert.deepEqual(put.createdAt, live.createdAt);
	assert.deepEqual(put.data, reset.data);
});

test('onConflictDoUpdate replaces an expired token by a new one', async () => {
	const expired = await inThePast(60, () => createToken(login));
	const put = await retrying(() => putToken(db, reset));

	assert.notEqual(put.id, expired.id);
	assert.ok(put._ts > expired._ts);
	assert.deepEqual(await db.select().from(tokens), [put]);
});

test('onConflictDoNothing keeps a live token and replaces an expired one', async () => {
	const insert = () => db.insert(tokens).values(reset).onConflictDoNothing().returning();

	await createToken(login);
	assert.deepEqual(await insert(), []);
	await travel(60);
	assert.equal((await insert()).length, 1);
});

test('an upsert of several tokens updates the live ones and inserts the others', async () => {
	await inThePast(60, () => createToken(login));
	const live = await createToken({ ...login, code: 'live' });

	const put = await db
		.insert(tokens)
		.values(['abc', 'live', 'new'].map((code) => ({ ...reset, code })))
		.onConflictDoUpdate({ target: tokens.code, set: { data: sql`excluded.data` } })
		.returning();
	assert.deepEqual(
		put.map(({ code, id }) => [code, id === live.id]),
		[['abc', false], ['live', true], ['new', false]],
	);
});

/** Runs an upsert that takes a minute between finding the token and updating it. */
function slowUpsert() {
	return db
		.insert(tokens)
		.values(reset)
		.onConflictDoUpdate({
			target: tokens.code,
			set: { data: reset.data },
			setWhere: sql`set_config('ttl_docs.clock_offset', '60s', false) is not null`,
		})
		.returning();
}

test('the retry of such an upsert inserts a new token', async () => {
	const expiring = await createToken(login);

	let attempts = 0;
	const [put] = await retrying(async () => {
		if (++attempts > 1) {
			// The server has rolled back the clock together with the first attempt.
			await travel(60);
		}
		return slowUpsert();
	});
	assert.equal(attempts, 2);
	assert.notEqual(put!.id, expiring.id);
	assert.deepEqual(await db.select().from(tokens), [put]);
});

test('retrying() limits the number of attempts, and does not retry after other errors', async () => {
	const raise = (code: string) => db.execute(sql.raw(`do $$ begin raise sqlstate '${code}'; end $$`));
	let attempts = 0;
	const counted = (code: string) => () => {
		attempts++;
		return raise(code);
	};

	await assert.rejects(retrying(counted('40001')), refusal('40001', '40001'));
	assert.equal(attempts, 3);
	await assert.rejects(retrying(counted('23505')), refusal('23505', '23505'));
	assert.equal(attempts, 4);
});
