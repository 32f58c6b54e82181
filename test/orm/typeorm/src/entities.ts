import {
	Column, CreateDateColumn, Entity, JoinColumn, ManyToOne, OneToMany, PrimaryGeneratedColumn, Unique, VersionColumn,
} from "typeorm";
import { Collection, Expiring, SystemColumns } from "./collection";

@Entity("users")
@Unique("users_email_key", ["email"])
export class User {
	@PrimaryGeneratedColumn("identity")
	id!: number;

	@Column("text")
	email!: string;

	@OneToMany(() => Session, (session) => session.user)
	sessions!: Session[];
}

@Collection("sessions")
export class Session extends SystemColumns {
	@PrimaryGeneratedColumn("uuid")
	id!: string;

	@ManyToOne(() => User, (user) => user.sessions, { nullable: false })
	@JoinColumn({ name: "user_id", foreignKeyConstraintName: "sessions_user_id_fkey" })
	user!: User;

	@Column("jsonb")
	data!: Expiring & { page?: string; theme?: string };
}

/** A one-time code, such as the one in the mail that confirms an address. */
@Collection("tokens")
@Unique("tokens_code_key", ["code"])
export class Token extends SystemColumns {
	@PrimaryGeneratedColumn("identity")
	id!: number;

	@Column("text")
	code!: string;

	@Column("jsonb")
	doc!: Expiring & { purpose: string };

	@CreateDateColumn({ name: "created_at", type: "timestamptz" })
	createdAt!: Date;
}

@Collection("carts")
export class Cart extends SystemColumns {
	@PrimaryGeneratedColumn("identity")
	id!: number;

	@Column("jsonb")
	doc!: Expiring & { note?: string };

	@VersionColumn()
	version!: number;

	@OneToMany(() => CartItem, (item) => item.cart)
	items!: CartItem[];
}

@Collection("cart_items")
export class CartItem extends SystemColumns {
	@PrimaryGeneratedColumn("identity")
	id!: number;

	@ManyToOne(() => Cart, (cart) => cart.items, { nullable: false, onDelete: "CASCADE" })
	@JoinColumn({ name: "cart_id", foreignKeyConstraintName: "cart_items_cart_id_fkey" })
	cart!: Cart;

	@Column("jsonb")
	doc!: Expiring & { sku: string };
}
