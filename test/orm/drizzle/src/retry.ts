import { serverError } from './errors.ts';

const SERIALIZATION_FAILURE = '40001';

/**
 * Tries again what failed only because of somebody else, or because a document expired under an
 * upsert: a single statement, or a whole transaction, but never a part of one.
 */
export async function retrying<Result>(work: () => Promise<Result>, attempts = 3): Promise<Result> {
	for (let attempt = 1; ; attempt++) {
		try {
			return await work();
		} catch (error) {
			if (attempt === attempts || serverError(error)?.code !== SERIALIZATION_FAILURE) {
				throw error;
			}
		}
	}
}
