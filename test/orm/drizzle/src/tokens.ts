import { eq, sql } from 'drizzle-orm';
import type { Db } from './db.ts';
import { theRow } from './errors.ts';
import { tokens } from './schema.ts';

type NewToken = Pick<typeof tokens.$inferInsert, 'code' | 'data'>;

/**
 * Creates the token, or replaces the document of the live token with this code.  Call this function
 * in retrying(), or in a transaction that is in retrying().
 */
export async function putToken(db: Db, token: NewToken) {
	const rows = await db
		.insert(tokens)
		.values(token)
		.onConflictDoUpdate({ target: tokens.code, set: { data: sql`excluded.data` } })
		.returning();
	return theRow(rows);
}

/** Deletes a token and returns it.  Only the first caller gets the token, others get undefined. */
export async function redeemToken(db: Db, code: string) {
	const [token] = await db.delete(tokens).where(eq(tokens.code, code)).returning();
	return token;
}
