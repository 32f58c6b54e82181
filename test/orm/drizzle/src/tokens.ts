import { eq, sql } from 'drizzle-orm';
import type { Db } from './db.ts';
import { theRow } from './errors.ts';
import { tokens } from './schema.ts';

type NewToken = Pick<typeof tokens.$inferInsert, 'code' | 'data'>;

/**
 * Creates the token, or replaces the document of the one that has this code.  To be called by way
 * of retrying(), or in a transaction that is.
 */
export async function putToken(db: Db, token: NewToken) {
	const rows = await db
		.insert(tokens)
		.values(token)
		.onConflictDoUpdate({ target: tokens.code, set: { data: sql`excluded.data` } })
		.returning();
	return theRow(rows);
}

/** Takes a token out of circulation: the first to ask gets it, and undefined is for all others. */
export async function redeemToken(db: Db, code: string) {
	const [token] = await db.delete(tokens).where(eq(tokens.code, code)).returning();
	return token;
}
