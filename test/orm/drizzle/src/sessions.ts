import { eq, sql } from 'drizzle-orm';
import type { Db } from './db.ts';
import { theRow } from './errors.ts';
import { sessions } from './schema.ts';

type Session = typeof sessions.$inferSelect;

/** Returns the session, or undefined if there is none or it has expired. */
export function findSession(db: Db, id: string) {
	return db.query.sessions.findFirst({ where: eq(sessions.id, id) });
}

/** Changes the document; this also restarts the countdown. */
export async function saveSession(db: Db, { id, data }: Pick<Session, 'id' | 'data'>) {
	return theRow(await db.update(sessions).set({ data }).where(eq(sessions.id, id)).returning());
}

/** Restarts the countdown without sending the document: any UPDATE of the row restarts it. */
export async function touchSession(db: Db, id: string): Promise<boolean> {
	const { rowCount } = await db
		.update(sessions)
		.set({ _ts: sql`default` })
		.where(eq(sessions.id, id));
	return rowCount === 1;
}

export async function endSession(db: Db, id: string) {
	theRow(await db.delete(sessions).where(eq(sessions.id, id)).returning({ id: sessions.id }));
}
