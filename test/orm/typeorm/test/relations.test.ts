import assert from "node:assert/strict";
import { test } from "node:test";
import { Cart, CartItem, Session, User } from "../src/entities";
import { database, refusal, travel, useDatabase } from "./support";

useDatabase();
const users = database.getRepository(User);
const sessions = database.getRepository(Session);
const carts = database.getRepository(Cart);
const items = database.getRepository(CartItem);

const DAY = 86400;

/** Creates a cart that expires after a day, with an item that expires after an hour and one that never expires. */
async function fillCart(): Promise<Cart> {
	const cart = await carts.save({ doc: {} });
	await items.insert([{ cart, doc: { sku: "bread" } }, { cart, doc: { sku: "lamp", ttl: -1 } }]);
	return cart;
}

test("loading a relation leaves out expired children, by a join and by separate queries", async () => {
	const { id } = await fillCart();
	await carts.save({ doc: { note: "empty" } });
	const load = async (relationLoadStrategy: "join" | "query") => {
		const found = await carts.find({
			relations: { items: true },
			relationLoadStrategy,
			order: { id: "ASC", items: { id: "ASC" } },
		});
		return found.map((cart) => cart.items.map(({ doc }) => doc.sku));
	};
	assert.deepEqual(await load("join"), [["bread", "lamp"], []]);
	assert.deepEqual(await load("query"), [["bread", "lamp"], []]);

	await travel(3601);
	assert.deepEqual(await load("join"), [["lamp"], []]);
	assert.deepEqual(await load("query"), [["lamp"], []]);
	assert.equal(await items.countBy({ cart: { id } }), 1);
});

test("an expired parent is not joined, although its children may be live", async () => {
	await fillCart();
	await travel(DAY + 1);
	assert.equal(await items.count(), 1);
	// The relation is not nullable, so TypeORM uses an inner join.
	assert.deepEqual(await items.find({ relations: { cart: true } }), []);
	const outer = await items.createQueryBuilder("item").leftJoinAndSelect("item.cart", "cart").getOneOrFail();
	assert.equal(outer.cart, null);
});

test("a parent with live children cannot be deleted, except with ON DELETE CASCADE", async () => {
	const user = await users.save({ email: "ann@example.com" });
	await sessions.save({ user, data: {} });
	await assert.rejects(
		users.delete(user.id),
		refusal("23503", /^update or delete on table "users" violates foreign key constraint "sessions_user_id_fkey"/),
	);

	const { id } = await fillCart();
	assert.equal((await carts.delete(id)).affected, 1);
	assert.equal(await items.count(), 0);
});

test("expired children do not block the delete of their parent", async () => {
	const user = await users.save({ email: "ann@example.com" });
	await sessions.save({ user, data: {} });
	await travel(1801);
	assert.equal((await users.delete(user.id)).affected, 1);
});
