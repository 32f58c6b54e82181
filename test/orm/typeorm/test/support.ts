import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, afterEach, before } from "node:test";
import { basename } from "node:path";
import { DataSource, DataSourceOptions, QueryFailedError } from "typeorm";
import { AppDataSource } from "../src/data-source";

// Test files may run at the same time, so each has its own schema.
export const schema = basename(process.argv[1]).replace(/\W/g, "_");

/** The connection option that selects the schema; it can also be in PGOPTIONS. */
export const searchPath = `-c search_path=${schema}`;

/** Returns a data source with one connection, so that a SET affects every query. Its clock can be ahead. */
export function connection(options: Partial<DataSourceOptions> = {}, secondsAhead = 0): DataSource {
	return new DataSource({
		...AppDataSource.options,
		poolSize: 1,
		extra: { options: `${searchPath} -c ttl_docs.clock_offset=${secondsAhead}s` },
		...options,
	} as DataSourceOptions);
}

/** The migration creates the tables. synchronize would not adopt them. */
export const database = connection({ dropSchema: true, migrationsRun: true });

/** Gives a test file the database, and each of its tests empty tables and the real time. */
export function useDatabase(): void {
	before(async () => {
		await inSession(connection(), (session) => session.query(`CREATE SCHEMA IF NOT EXISTS ${schema}`));
		await database.initialize();
	});
	afterEach(async () => {
		await travel(0);
		const tables = database.entityMetadatas.map(({ tablePath }) => tablePath);
		await database.query(`TRUNCATE ${tables.join(", ")} RESTART IDENTITY`);
	});
	after(async () => {
		await database.query(`DROP SCHEMA ${schema} CASCADE`);
		await database.destroy();
	});
}

/** Sets the clock of the given connection to so many seconds after the real time. */
export async function travel(seconds: number, session: Pick<DataSource, "query"> = database): Promise<void> {
	await session.query("SELECT set_config('ttl_docs.clock_offset', $1, false)", [`${seconds}s`]);
}

/** Opens a connection, runs the work with it, and closes it. */
export async function inSession<Result>(
	session: DataSource, work: (session: DataSource) => Promise<Result>,
): Promise<Result> {
	await session.initialize();
	try {
		return await work(session);
	} finally {
		await session.destroy();
	}
}

/** For assert.rejects(): checks for TypeORM's error with this SQLSTATE, message and hint of the server. */
export function refusal(code: string, message: string | RegExp, hint = /.*/) {
	return (error: unknown): true => {
		assert.ok(error instanceof QueryFailedError, `${error}`);
		assert.equal(error.driverError.code, code);
		assert.match(error.driverError.hint ?? "", hint);
		if (message instanceof RegExp) {
			assert.match(error.message, message);
		} else {
			assert.equal(error.message, message);
		}
		return true;
	};
}

/** Runs TypeORM's command line tool on the schema of this test file. */
export async function typeorm(...args: string[]): Promise<{ code: number; output: string }> {
	// Without NO_COLOR, the tool would print colours if CI is set.
	const env = { ...process.env, PGOPTIONS: searchPath, NO_COLOR: "1" };
	return new Promise((resolve) => {
		execFile(process.execPath, [require.resolve("typeorm/cli.js"), ...args], { env }, (error, stdout, stderr) => {
			resolve({ code: error ? Number(error.code) : 0, output: stdout + stderr });
		});
	});
}
