import assert from "node:assert/strict";
import { test } from "node:test";
import { touch } from "../src/documents";
import { Session, User } from "../src/entities";
import { database, travel, useDatabase } from "./support";

useDatabase();
const sessions = database.getRepository(Session);

async function logIn(): Promise<Session> {
	const user = await database.getRepository(User).save({ email: "ann@example.com" });
	return sessions.save({ user, data: { page: "/home", theme: "dark" } });
}

test("a session expires 30 minutes after it was last touched", async () => {
	const { id } = await logIn();
	await travel(1700);
	assert.equal(await touch(sessions, { id }), true);
	await travel(3400);
	assert.equal(await touch(sessions, { id }), true);
	assert.deepEqual((await sessions.findOneByOrFail({ id })).data, { page: "/home", theme: "dark" });

	await travel(5300);
	assert.equal(await sessions.findOneBy({ id }), null);
	assert.equal(await touch(sessions, { id }), false, "the session has expired");
});

test("a touch sets _ts to the time of the touch", async () => {
	const { id, _ts } = await logIn();
	await travel(1700);
	await touch(sessions, { id });
	const touched = await sessions.findOneByOrFail({ id });
	assert.ok(touched._ts.getTime() >= _ts.getTime() + 1_700_000);
});

test("save() without a change does not write, so the countdown continues", async () => {
	const session = await logIn();
	await travel(1700);
	await sessions.save(session);
	await travel(1900);
	assert.equal(await sessions.findOneBy({ id: session.id }), null);
});
