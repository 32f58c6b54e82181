import {
	EntityNotFoundError, FindOptionsWhere, ObjectLiteral, QueryFailedError, Repository, UpdateQueryBuilder,
} from "typeorm";

type Changes<Entity extends ObjectLiteral> = Parameters<UpdateQueryBuilder<Entity>["set"]>[0];

/**
 * For documents that must still be there. save() would insert an expired one anew, and update()
 * alone only counts.
 */
export async function updateOrFail<Entity extends ObjectLiteral>(
	repository: Repository<Entity>, where: FindOptionsWhere<Entity>, changes: Changes<Entity>,
): Promise<void> {
	const { affected } = await repository.update(where, changes);
	if (affected === 0) {
		throw new EntityNotFoundError(repository.target, where);
	}
}

/** Restarts the countdown without sending the document; false if it is too late for that. */
export async function touch<Entity extends ObjectLiteral>(
	repository: Repository<Entity>, where: FindOptionsWhere<Entity>,
): Promise<boolean> {
	// An update of nothing still sets the update date, which is _ts.
	const { affected } = await repository.update(where, {});
	return affected !== 0;
}

const SERIALIZATION_FAILURE = "40001";

/**
 * Tries an upsert again whose document expired while it waited. A transaction is to be tried
 * again as a whole: put all of dataSource.transaction() into the attempt.
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
