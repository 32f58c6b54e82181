import {
	EntityNotFoundError, FindOptionsWhere, ObjectLiteral, QueryFailedError, Repository, UpdateQueryBuilder,
} from "typeorm";

type Changes<Entity extends ObjectLiteral> = Parameters<UpdateQueryBuilder<Entity>["set"]>[0];

/**
 * Updates a document, or throws if it is not live. save() would insert an expired document again,
 * and update() only returns a count.
 */
export async function updateOrFail<Entity extends ObjectLiteral>(
	repository: Repository<Entity>, where: FindOptionsWhere<Entity>, changes: Changes<Entity>,
): Promise<void> {
	const { affected } = await repository.update(where, changes);
	if (affected === 0) {
		throw new EntityNotFoundError(repository.target, where);
	}
}

/** Restarts the countdown without sending the document; returns false if the document has expired. */
export async function touch<Entity extends ObjectLiteral>(
	repository: Repository<Entity>, where: FindOptionsWhere<Entity>,
): Promise<boolean> {
	// An update without changes still sets the update date, which is _ts.
	const { affected } = await repository.update(where, {});
	return affected !== 0;
}

const SERIALIZATION_FAILURE = "40001";

/**
 * Retries after a serialization failure. An upsert fails this way if its document expires while
 * the upsert waits. Retry a transaction as a whole: call dataSource.transaction() in the attempt.
 */
export async function retrying<Result>(attempt: () => Promise<Result>, attempts = 3): Promise<Result> {
	for (let left = attempts - 1; ; left--) {
		try {
			return await attempt();
		} catch (error) {
			const passing = error instanceof QueryFailedError && error.driverError.code === SERIALIZATION_FAILURE;
			if (!passing || left <= 0) {
				throw error;
			}
		}
	}
}
