// Two tables without the system columns.
import { integer, jsonb, pgTable, text, uuid } from 'drizzle-orm/pg-core';

export const users = pgTable('users', {
	id: integer().primaryKey().generatedAlwaysAsIdentity(),
	email: text().notNull().unique(),
});

export const sessions = pgTable('sessions', {
	id: uuid().primaryKey().defaultRandom(),
	userId: integer('user_id').notNull().references(() => users.id),
	data: jsonb().notNull(),
});
