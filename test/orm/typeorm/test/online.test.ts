import assert from "node:assert/strict";
import { test } from "node:test";
import { DataSource } from "typeorm";
import { AdoptVisits1700000000001 } from "../src/online/1700000000001-AdoptVisits";
import { connection, inSession, travel, useDatabase } from "./support";

useDatabase();

/** With "each", a migration can do without a transaction. */
const online = connection({
	entities: [],
	migrations: [AdoptVisits1700000000001],
	migrationsTableName: "online_migrations",
	migrationsTransactionMode: "each",
});

async function count(session: DataSource): Promise<number> {
	const [{ count }] = await session.query("SELECT count(*)::integer FROM visits");
	return count;
}

test("a migration adopts a table while the application uses it, and back", async () => {
	await inSession(online, async (session) => {
		await session.query("CREATE TABLE visits (id serial PRIMARY KEY, doc jsonb NOT NULL)");
		await session.query(`INSERT INTO visits (doc) VALUES ('{"page": "/"}'), ('{"ttl": -1}')`);
		await session.runMigrations();
		assert.equal(await count(session), 2);
		await travel(1800, session);
		assert.equal(await count(session), 1);
		await session.undoLastMigration();
		assert.equal(await count(session), 1);
		await session.query("DROP TABLE visits");
	});
});
