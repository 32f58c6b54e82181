import { Column, CreateDateColumn, DataSource, Entity, PrimaryGeneratedColumn, Unique } from "typeorm";
import { AppDataSource } from "../../src/data-source";

/** The collection "tokens", mapped without the system columns. */
@Entity("tokens")
@Unique("tokens_code_key", ["code"])
export class NaiveToken {
	@PrimaryGeneratedColumn("identity")
	id!: number;

	@Column("text")
	code!: string;

	@Column("jsonb")
	doc!: object;

	@CreateDateColumn({ name: "created_at", type: "timestamptz" })
	createdAt!: Date;
}

export const NaiveDataSource = new DataSource({ ...AppDataSource.options, entities: [NaiveToken] });
