import { Column, Entity, Index, UpdateDateColumn } from "typeorm";

/**
 * `@Entity()` for a collection. TypeORM drops indexes that it does not know, so it has to
 * know the purge index; "synchronize: false" leaves the building of it to ttl_docs.
 */
export function Collection(table: string): ClassDecorator {
	return (target) => {
		Entity(table)(target);
		Index(`${table}__slot_idx`, { synchronize: false })(target);
	};
}

/**
 * The columns that ttl_docs adds to a collection. The server writes them. They are here so that
 * TypeORM does not drop them, and with default and comment so that it sees nothing to change.
 */
export abstract class SystemColumns {
	/** When the document was last written. As the "update date" it is read back by each save(). */
	@UpdateDateColumn({
		type: "timestamptz",
		default: () => "clock_timestamp()",
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
		insert: false,
		update: false,
		select: false,
		comment: "ttl_docs: internal, position in the purge index",
	})
	protected readonly _slot?: string | null;
}

/** A document may say how many seconds it lives; -1 is for ever. If it does not, its collection does. */
export interface Expiring {
	ttl?: number;
}
