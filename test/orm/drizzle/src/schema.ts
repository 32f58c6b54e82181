import { relations } from 'drizzle-orm';
import { integer, jsonb, pgTable, text, timestamp, uuid } from 'drizzle-orm/pg-core';
import { ttlColumns, ttlIndex } from './ttl.ts';
import type { Expiring } from './ttl.ts';

export const users = pgTable('users', {
	id: integer().primaryKey().generatedAlwaysAsIdentity(),
	email: text().notNull().unique(),
});

export const sessions = pgTable(
	'sessions',
	{
		id: uuid().primaryKey().defaultRandom(),
		userId: integer('user_id').notNull().references(() => users.id),
		data: jsonb().$type<Expiring<{ page?: string }>>().notNull(),
		...ttlColumns,
	},
	(table) => [ttlIndex(table)],
);

export const tokens = pgTable(
	'tokens',
	{
		id: integer().primaryKey().generatedAlwaysAsIdentity(),
		code: text().notNull().unique(),
		data: jsonb().$type<Expiring<{ purpose: string }>>().notNull(),
		createdAt: timestamp('created_at', { withTimezone: true }).notNull().defaultNow(),
		...ttlColumns,
	},
	(table) => [ttlIndex(table)],
);

export const carts = pgTable(
	'carts',
	{
		id: integer().primaryKey().generatedAlwaysAsIdentity(),
		data: jsonb().$type<Expiring<{ customer: string }>>().notNull(),
		...ttlColumns,
	},
	(table) => [ttlIndex(table)],
);

export const cartItems = pgTable(
	'cart_items',
	{
		id: integer().primaryKey().generatedAlwaysAsIdentity(),
		cartId: integer('cart_id').notNull().references(() => carts.id),
		data: jsonb().$type<Expiring<{ sku: string }>>().notNull(),
		...ttlColumns,
	},
	(table) => [ttlIndex(table)],
);

export const cartRelations = relations(carts, ({ many }) => ({
	items: many(cartItems),
}));

export const cartItemRelations = relations(cartItems, ({ one }) => ({
	cart: one(carts, { fields: [cartItems.cartId], references: [carts.id] }),
}));
