import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { eq } from 'drizzle-orm';
import { StaleDocumentError } from '../src/errors.ts';
import { sessions, users } from '../src/schema.ts';
import { endSession, findSession, saveSession, touchSession } from '../src/sessions.ts';
import { db, travel, useMigratedDatabase } from './database.ts';

useMigratedDatabase();

const MINUTE = 60;
let userId: number;

beforeEach(async () => {
	const [user] = await db.insert(users).values({ email: 'ann@example.com' }).returning();
	userId = user!.id;
});

async function logIn() {
	const [session] = await db.insert(sessions).values({ userId, data: { page: '/' } }).returning();
	return session!;
}

test('with the recipe, saving a session that expired after it was loaded throws an error', async () => {
	const session = await logIn();
	await travel(30 * MINUTE);

	await assert.rejects(saveSession(db, { ...session, data: { page: '/late' } }), StaleDocumentError);
});

test('with the recipe, ending an expired session throws an error', async () => {
	const session = await logIn();
	await travel(30 * MINUTE);

	await assert.rejects(endSession(db, session.id), StaleDocumentError);
});

test('a live session can be saved and ended', async () => {
	const session = await logIn();

	const saved = await saveSession(db, { ...session, data: { page: '/cart' } });
	assert.deepEqual(saved.data, { page: '/cart' });
	assert.ok(saved._ts >= session._ts);
	await endSession(db, session.id);
	assert.equal(await findSession(db, session.id), undefined);
});

test('saving a session with a ttl sets its own ttl, saving it without a ttl makes it inherit again', async () => {
	const session = await logIn();

	assert.equal((await saveSession(db, { ...session, data: { ttl: MINUTE } }))._ttl, MINUTE);
	assert.equal((await saveSession(db, { ...session, data: {} }))._ttl, null);
});

test('touching a session restarts its countdown and does not change the document', async () => {
	const session = await logIn();

	await travel(20 * MINUTE);
	assert.equal(await touchSession(db, session.id), true);
	await travel(40 * MINUTE);
	assert.equal(await touchSession(db, session.id), true);
	await travel(60 * MINUTE);
	assert.deepEqual((await findSession(db, session.id))?.data, { page: '/' });
	await travel(71 * MINUTE);
	assert.equal(await findSession(db, session.id), undefined);
});

test('touching an expired session does not bring it back', async () => {
	const session = await logIn();
	await travel(30 * MINUTE);

	assert.equal(await touchSession(db, session.id), false);
	assert.equal(await findSession(db, session.id), undefined);
});
