// Prisma without its Rust engine: a generated client on the driver pg, and the calls of ../behaviours.py.

import { PrismaPg } from '@prisma/adapter-pg';
import { PrismaClient } from '@prisma/client';
import { serve } from '../serve.mjs';

const prisma = new PrismaClient({ adapter: new PrismaPg({ host: process.env.PGHOST }) });
// Leave the columns of ttl_docs out.
const select = { id: true, owner: true, doc: true };
let loaded;

serve({
	async migrate() {
		// The SQL of "prisma migrate diff", whose engine is a program that is not in the npm package, without the
		// columns of ttl_docs; adopt() also accepts them.
		await prisma.$executeRaw`CREATE TABLE carts (id text PRIMARY KEY, owner text NOT NULL UNIQUE, doc jsonb NOT NULL)`;
		await prisma.$executeRaw`CREATE TABLE items (id integer PRIMARY KEY, sku text NOT NULL,
			cart_id text NOT NULL REFERENCES carts ON UPDATE CASCADE ON DELETE CASCADE)`;
		await prisma.$executeRaw`SELECT ttl_docs.adopt('carts', 3600)`;
		return { stale_save: 'raises', stale_destroy: 'raises', schema_tool: false, hides_orphans: false };
	},
	async create(id, owner, doc) {
		await prisma.cart.create({ data: { id, owner, doc } });
	},
	async create_many(rows) {
		await prisma.cart.createMany({ data: rows.map(([id, owner, doc]) => ({ id, owner, doc })) });
	},
	read: (id) => prisma.cart.findUnique({ where: { id }, select }),
	async list() {
		return (await prisma.cart.findMany({ orderBy: { id: 'asc' } })).map((cart) => cart.id);
	},
	count: () => prisma.cart.count(),
	// updateMany() and deleteMany() count; update() and delete() raise P2025 if there is no row
	async update(id, doc) {
		return (await prisma.cart.updateMany({ where: { id }, data: { doc } })).count;
	},
	async update_all(doc) {
		return (await prisma.cart.updateMany({ data: { doc } })).count;
	},
	// The server replaces the value.
	async touch(id) {
		return (await prisma.cart.updateMany({ where: { id }, data: { ts: new Date() } })).count;
	},
	async remove(id) {
		return (await prisma.cart.deleteMany({ where: { id } })).count;
	},
	async upsert(id, owner, doc) {
		await prisma.cart.upsert({ where: { id }, create: { id, owner, doc }, update: { owner, doc } });
	},
	async load(id) {
		loaded = await prisma.cart.findUniqueOrThrow({ where: { id }, select });
	},
	async save(doc) {
		await prisma.cart.update({ where: { id: loaded.id }, data: { doc } });
	},
	async destroy() {
		await prisma.cart.delete({ where: { id: loaded.id } });
	},
	async add_item(id, cartId, sku) {
		await prisma.item.create({ data: { id, cartId, sku } });
	},
	async items_of(id) {
		const cart = await prisma.cart.findUnique({ where: { id }, include: { items: { orderBy: { id: 'asc' } } } });
		return cart && cart.items.map((item) => item.sku);
	},
	async carts_of_items() {
		const items = await prisma.item.findMany({ include: { cart: { select } }, orderBy: { id: 'asc' } });
		return items.map((item) => [item.sku, item.cart?.id ?? null]);
	},
	async failing_transaction(id) {
		const failure = new Error('roll back');
		await prisma.$transaction(async (transaction) => {
			await transaction.cart.create({ data: { id, owner: 'ann', doc: {} } });
			throw failure;
		}).catch((error) => {
			if (error !== failure) {
				throw error;
			}
		});
	},
	close: () => prisma.$disconnect(),
}, { P2002: '23505', P2003: '23503', P2034: '40001' });
