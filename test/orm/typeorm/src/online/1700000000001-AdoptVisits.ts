import { MigrationInterface, QueryRunner } from "typeorm";

/** Makes the large table visits a collection, while the application uses it. */
export class AdoptVisits1700000000001 implements MigrationInterface {
	// adopt_concurrently() commits several times, so it cannot run in a transaction.
	transaction = false;

	async up(queryRunner: QueryRunner): Promise<void> {
		await queryRunner.query(`CALL ttl_docs.adopt_concurrently('visits', 1800)`);
	}

	async down(queryRunner: QueryRunner): Promise<void> {
		await queryRunner.query(`CALL ttl_docs.purge('visits')`);
		await queryRunner.query(`SELECT ttl_docs.release('visits')`);
	}
}
