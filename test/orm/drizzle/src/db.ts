import { drizzle } from 'drizzle-orm/node-postgres';
import type { NodePgQueryResultHKT } from 'drizzle-orm/node-postgres';
import type { PgDatabase } from 'drizzle-orm/pg-core';
import { Pool } from 'pg';
import type { PoolConfig } from 'pg';
import * as schema from './schema.ts';

/** The database, or a transaction in it. */
export type Db = PgDatabase<NodePgQueryResultHKT, typeof schema>;

/** Connects to the server that the environment names (PGHOST, PGPORT, ...). */
export function connect(config: PoolConfig = {}) {
	return drizzle({ client: new Pool(config), schema });
}
