import { Column, Entity, Index, UpdateDateColumn } from "typeorm";

/**
 * `@Entity()` for a collection. TypeORM drops indexes that the model does not have, so the model
 * has the purge index. With "synchronize: false", TypeORM leaves its creation to ttl_docs.
 */
export function Collection(table: string): ClassDecorator {
	return (target) => {
		Entity(table)(target);
		Index(`${table}__slot_idx`, { synchronize: false })(target);
	};
}

/**
 * The system columns, which ttl_docs adds to a collection and the server writes. They are in the
 * model so that TypeORM does not drop them. They have the default and the comments of the server,
 * so that TypeORM finds no difference.
 */
export abstract class SystemColumns {
	/** When the document was last written. As this is the "update date", each save() reads it back. */
	@UpdateDateColumn({
		type: "timestamptz",
		default: () => "now()",
		insert: false,
		update: false,
		comment: "ttl_docs: when the document was last written",
	})
	readonly _ts!: Date;

	@Column({
		type: "integer",
		nullable: true,
		insert: false,
		update: false,
		select: false,
		comment: "ttl_docs: the document's own ttl; NULL inherits; ignored while TTL is off, see ttl_docs.collections",
	})
	protected readonly _ttl?: number | null;

	@Column({
		type: "bigint",
		nullable: true,
		default: "1000000000000000",
		insert: false,
		update: false,
		select: false,
		comment: "ttl_docs: internal, position in the purge index",
	})
	protected readonly _slot?: string | null;
}

/** A document can have its own ttl in seconds; -1 means never. Otherwise it inherits the DefaultTTL. */
export interface Expiring {
	ttl?: number;
}
