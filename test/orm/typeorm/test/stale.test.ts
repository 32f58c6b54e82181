import assert from "node:assert/strict";
import { test } from "node:test";
import { EntityNotFoundError, OptimisticLockVersionMismatchError, UpdateEvent } from "typeorm";
import { touch, updateOrFail } from "../src/documents";
import { Cart, CartItem } from "../src/entities";
import { database, travel, useDatabase } from "./support";

useDatabase();
const carts = database.getRepository(Cart);
const items = database.getRepository(CartItem);

const DAY = 86400;

test("save() of an entity that expired after it was loaded inserts it again, without an error", async () => {
	const cart = await carts.save({ doc: { note: "gift" } });
	await carts.save({ id: cart.id, doc: { note: "a gift" } });
	const loaded = await carts.findOneByOrFail({ id: cart.id });
	assert.equal(loaded.version, 2);

	await travel(DAY + 1);
	loaded.doc.note = "back from the dead";
	await carts.save(loaded);
	// save() does not find the key, so it inserts. An UPDATE would have set the version to 3.
	const found = await carts.findOneByOrFail({ id: cart.id });
	assert.equal(found.doc.note, "back from the dead");
	assert.equal(found.version, 2);
});

test("such a save() deletes rows that refer to the expired document with ON DELETE CASCADE", async () => {
	const cart = await carts.save({ doc: {} });
	await items.save({ cart, doc: { sku: "lamp", ttl: -1 } });
	await travel(DAY + 1);
	assert.equal(await items.count(), 1);

	cart.doc.note = "back from the dead";
	await carts.save(cart);
	assert.equal(await items.count(), 0);
});

test("save() of a document that expires between its SELECT and UPDATE writes nothing, without an error", async () => {
	const cart = await carts.save({ doc: { note: "gift" } });
	const late = { beforeUpdate: (event: UpdateEvent<Cart>) => travel(DAY + 1, event.queryRunner) };
	database.subscribers.push(late);
	try {
		cart.doc.note = "too late";
		await carts.save(cart);
	} finally {
		database.subscribers.splice(database.subscribers.indexOf(late), 1);
	}
	assert.equal(await carts.count(), 0);
	await travel(0);
	assert.equal((await carts.findOneByOrFail({ id: cart.id })).doc.note, "gift");
});

test("remove() of an expired entity does nothing, without an error", async () => {
	const cart = await carts.save(carts.create({ doc: {} }));
	await travel(DAY + 1);
	await carts.remove(cart);
	assert.equal(cart.id, undefined, "TypeORM treats the entity as removed");
});

test("updateOrFail() updates a live document, and throws if the document has expired", async () => {
	const { id } = await carts.save({ doc: {} });
	await updateOrFail(carts, { id }, { doc: { note: "in time" } });
	assert.equal((await carts.findOneByOrFail({ id })).doc.note, "in time");

	await travel(DAY + 1);
	await assert.rejects(updateOrFail(carts, { id }, { doc: { note: "too late" } }), EntityNotFoundError);
	assert.equal(await carts.count(), 0);
});

test("updateOrFail() with the version in its condition also detects other writes", async () => {
	const { id, version } = await carts.save({ doc: { note: "first" } });
	await updateOrFail(carts, { id, version }, { doc: { note: "second" } });
	assert.equal((await carts.findOneByOrFail({ id })).version, version + 1);

	await assert.rejects(updateOrFail(carts, { id, version }, { doc: { note: "third" } }), EntityNotFoundError);
	assert.equal((await carts.findOneByOrFail({ id })).doc.note, "second");
});

test("an optimistic lock by _ts detects that an expired document was replaced, one by version does not", async () => {
	const old = await carts.save({ doc: { note: "old" } });
	await travel(DAY + 1);
	const byVersion = { where: { id: old.id }, lock: { mode: "optimistic", version: old.version } } as const;
	const byTime = { where: { id: old.id }, lock: { mode: "optimistic", version: old._ts } } as const;
	assert.equal(await carts.findOne(byVersion), null);
	await assert.rejects(carts.findOneOrFail(byTime), EntityNotFoundError);

	await carts.save({ id: old.id, doc: { note: "new" } });
	assert.equal((await carts.findOneOrFail(byVersion)).doc.note, "new", "both have version 1");
	await assert.rejects(carts.findOneOrFail(byTime), OptimisticLockVersionMismatchError);
});

test("a touch also increments the version", async () => {
	const { id, version } = await carts.save({ doc: {} });
	assert.equal(await touch(carts, { id }), true);
	assert.equal((await carts.findOneByOrFail({ id })).version, version + 1);
});
