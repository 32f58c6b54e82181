/*-------------------------------------------------------------------------
 *
 * progress.c
 *		How far the purge of a table has come, and the documents it has left.
 *
 * Position.  Documents are written into slots that have yet to expire.  So the
 * next search of the purge index begins where the last one ended, and never reads
 * again the dead entries that an old snapshot keeps in the index.  If a document is
 * written into a slot that the purge has passed, its commit announces the due time,
 * and the position goes back to that slot.  This happens if the stamp did not come
 * from the clock (replication, a restore), or if the commit was late.  A position
 * is not valid after a change of settings or of the index, or if the clock has gone
 * back.
 *
 * Left documents.  A pass leaves a document that is busy, that is still live, or that
 * cannot be deleted and finds no room in the quarantine (quarantine.c), and goes on
 * with the others.  The positions of the first and the last left document are kept,
 * not the documents themselves.  A revisit goes back to the first position and
 * searches again from there:
 *
 * 1. For live documents, when the first of them expires.
 * 2. For busy documents, after ttl_docs.purge_naptime.
 * 3. For undeletable documents alone, after 30 seconds.
 *
 * Each revisit that has to leave documents again doubles the delay of the next one,
 * up to a minute for busy documents and an hour for undeletable ones.  The delay
 * begins when the revisit has passed the last left document.  So other documents
 * get their turn between two revisits, however many documents are left.
 *
 * A BRIN index has no positions, and each pass over a lazy collection finds the left
 * documents again.  If some are undeletable, the next pass begins after 30 seconds,
 * and each later one after a minute.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "purge/pass_internal.h"

/* no ttl is shorter, so a clock that goes back by less does no harm */
#define CLOCK_TOLERANCE	USECS_PER_SEC

#define MAX_BUSY_DELAY			(60 * USECS_PER_SEC)
#define MIN_UNDELETABLE_DELAY	(30 * USECS_PER_SEC)
#define MAX_UNDELETABLE_DELAY	(3600 * USECS_PER_SEC)
#define MAX_LAZY_DELAY			(60 * USECS_PER_SEC)

static void leave(PurgeProgress *progress, const Candidate *candidate);
static void leave_in_trouble(PurgeProgress *progress, const Candidate *candidate,
							 TimestampTz clock);
static TimestampTz revisit_delay(const PurgeProgress *progress);
static bool is_revisiting(const PurgeProgress *progress);
static bool is_revisiting_range(const PurgeProgress *progress, SlotRange range);
static void begin_revisit(PurgeProgress *progress);

/* Compares the places of two positions in the index. */
int
ttl_docs_compare_positions(const PurgePosition *a, const PurgePosition *b)
{
	if (a->slot != b->slot)
		return a->slot < b->slot ? -1 : 1;
	return ItemPointerCompare(unconstify(ItemPointerData *, &a->tid),
							  unconstify(ItemPointerData *, &b->tid));
}

/* Begins from the start, under the current settings. */
void
ttl_docs_reset_progress(PurgeProgress *progress, const PurgeTarget *target,
						TimestampTz clock)
{
	memset(progress, 0, sizeof(*progress));
	progress->is_set = true;
	progress->root = target->collection.root;
	progress->settings = target->collection.settings;
	progress->index = target->index;
	progress->index_file = target->index_file;
	progress->clock = clock;
	for (SlotRange range = 0; range < RANGE_COUNT; range++)
		progress->next[range].slot = NO_SLOT;
	progress->left.expire_at = DT_NOEND;
}

/* Are settings and index as they were then, and has the clock not gone back? */
bool
ttl_docs_progress_is_valid(const PurgeProgress *progress, const PurgeTarget *target,
						   TimestampTz clock)
{
	return progress->is_set &&
		progress->index == target->index &&
		progress->index_file == target->index_file &&
		progress->root == target->collection.root &&
		!ttl_docs_clock_went_back(progress->clock, clock) &&
		ttl_docs_same_expiry(&progress->settings, &target->collection.settings);
}

/* Do documents expire in the same way, and are they indexed in the same way? */
bool
ttl_docs_same_expiry(const CollectionSettings *a, const CollectionSettings *b)
{
	return a->on == b->on && a->default_ttl == b->default_ttl &&
		a->indexing == b->indexing && a->written_floor == b->written_floor &&
		a->due_floor == b->due_floor;
}

/* Has the clock gone back by more than the tolerance? */
bool
ttl_docs_clock_went_back(TimestampTz before, TimestampTz clock)
{
	return before > clock + CLOCK_TOLERANCE;
}

/*
 * A document was committed in a slot with this due time.  Moves the position back to
 * the beginning of the slot, if the position is in the slot or beyond it.  If the
 * next search will find left documents again, begins a revisit, which counts all of
 * them again.
 */
void
ttl_docs_rewind_progress(PurgeProgress *progress, TimestampTz due)
{
	LeftDocuments *left = &progress->left;
	bool		meets_left = false;

	for (SlotRange range = 0; range < RANGE_COUNT; range++)
	{
		int64		slot = ttl_docs_slot_at(range, due, progress->settings.default_ttl);

		/* equal slots too: the row may come before the position in its slot */
		if (slot > progress->next[range].slot)
			continue;
		progress->next[range].slot = slot;
		ItemPointerSet(&progress->next[range].tid, 0, 0);
		progress->next[range].leaf = 0;
		meets_left |= left->has_position[range] && slot <= left->last[range].slot;
	}
	if (meets_left)
		begin_revisit(progress);
}

/* Gets the position, for a pass that another session will continue. */
void
ttl_docs_get_position(const PurgeProgress *progress, PassPosition *position)
{
	position->index_file = progress->index_file;
	memcpy(position->next, progress->next, sizeof(position->next));
	position->next_block = progress->next_block;
	position->next_row = progress->next_row;
}

/* Goes to the position that another session has got, unless the index has changed. */
void
ttl_docs_go_to_position(PurgeProgress *progress, const PassPosition *position)
{
	if (position->index_file != progress->index_file)
		return;
	memcpy(progress->next, position->next, sizeof(progress->next));
	progress->next_block = position->next_block;
	progress->next_row = position->next_row;
}

/* Leaves a document that is locked by another session, or not committed. */
void
ttl_docs_leave_busy(PurgeProgress *progress, const Candidate *candidate,
					TimestampTz clock)
{
	leave_in_trouble(progress, candidate, clock);
	progress->left.busy++;
}

/* Leaves a document that cannot be deleted. */
void
ttl_docs_leave_undeletable(PurgeProgress *progress, const Candidate *candidate,
						   TimestampTz clock)
{
	leave_in_trouble(progress, candidate, clock);
	progress->left.undeletable++;
}

static void
leave_in_trouble(PurgeProgress *progress, const Candidate *candidate,
				 TimestampTz clock)
{
	if (!ttl_docs_has_left(progress) || is_revisiting(progress))
		progress->left.left_at = clock;
	leave(progress, candidate);
}

/* Leaves a live document, which expires at the given time. */
void
ttl_docs_leave_live(PurgeProgress *progress, const Candidate *candidate,
					TimestampTz expires)
{
	if (expires == DT_NOEND)
		return;
	progress->left.expire_at = Min(progress->left.expire_at, expires);
	leave(progress, candidate);
}

static void
leave(PurgeProgress *progress, const Candidate *candidate)
{
	LeftDocuments *left = &progress->left;
	SlotRange	range = ttl_docs_slot_range(candidate->slot);
	PurgePosition position = {candidate->slot, candidate->tid, 0};

	if (candidate->slot == NO_SLOT)
		return;					/* found by a BRIN index */
	if (!left->has_position[range] ||
		ttl_docs_compare_positions(&position, &left->first[range]) < 0)
		left->first[range] = position;
	if (!left->has_position[range] ||
		ttl_docs_compare_positions(&position, &left->last[range]) > 0)
		left->last[range] = position;
	left->has_position[range] = true;
}

/* Are documents left that are busy or undeletable? */
bool
ttl_docs_has_left(const PurgeProgress *progress)
{
	return progress->left.busy > 0 || progress->left.undeletable > 0;
}

/* The delay before the next visit to something busy, after so many visits. */
TimestampTz
ttl_docs_busy_delay(int visits)
{
	return ttl_docs_growing_delay(ttl_docs_purge_naptime * INT64CONST(1000), visits,
								  MAX_BUSY_DELAY);
}

static TimestampTz
revisit_delay(const PurgeProgress *progress)
{
	bool		is_lazy = progress->settings.indexing == INDEXING_LAZY;

	if (progress->left.busy > 0 && !(is_lazy && progress->left.undeletable > 0))
		return ttl_docs_busy_delay(progress->left.revisits);
	return ttl_docs_growing_delay(MIN_UNDELETABLE_DELAY, progress->left.revisits,
								  is_lazy ? MAX_LAZY_DELAY : MAX_UNDELETABLE_DELAY);
}

/* When to go back to the left documents; DT_NOEND if there are none. */
TimestampTz
ttl_docs_revisit_at(const PurgeProgress *progress)
{
	const LeftDocuments *left = &progress->left;
	TimestampTz revisit_at;

	if (!progress->is_set)
		return DT_NOEND;
	if (!ttl_docs_has_left(progress))
		return left->expire_at;
	revisit_at = left->left_at + revisit_delay(progress);
	/* a pass over a lazy collection does not begin earlier */
	if (progress->settings.indexing == INDEXING_LAZY && left->undeletable > 0)
		return revisit_at;
	return Min(revisit_at, left->expire_at);
}

/* Is a revisit under way, which has not passed all left documents yet? */
static bool
is_revisiting(const PurgeProgress *progress)
{
	for (SlotRange range = 0; range < RANGE_COUNT; range++)
		if (is_revisiting_range(progress, range))
			return true;
	return false;
}

static bool
is_revisiting_range(const PurgeProgress *progress, SlotRange range)
{
	return progress->left.has_revisit_end[range] &&
		ttl_docs_compare_positions(&progress->next[range],
						  &progress->left.revisit_end[range]) <= 0;
}

/* Goes back to the left documents of a btree, if it is time. */
void
ttl_docs_revisit_left(PurgeProgress *progress, TimestampTz clock)
{
	if (clock < ttl_docs_revisit_at(progress) || is_revisiting(progress))
		return;
	if (ttl_docs_has_left(progress) &&
		clock >= progress->left.left_at + revisit_delay(progress))
		progress->left.revisits++;
	begin_revisit(progress);
}

/*
 * Begins a pass over a lazy collection, which finds all left documents again.  False if
 * it is too early.  It is never too early to continue a pass that has not ended.
 */
bool
ttl_docs_begin_lazy(PurgeProgress *progress, TimestampTz clock, bool continues)
{
	if (!continues && progress->left.undeletable > 0 &&
		clock < progress->left.left_at + revisit_delay(progress))
		return false;
	if (ttl_docs_has_left(progress))
		progress->left.revisits++;
	begin_revisit(progress);
	return true;
}

/* Moves the position back to the first left document, and resets the counts. */
static void
begin_revisit(PurgeProgress *progress)
{
	LeftDocuments *left = &progress->left;

	for (SlotRange range = 0; range < RANGE_COUNT; range++)
	{
		if (!left->has_position[range])
			continue;
		if (!is_revisiting_range(progress, range) ||
			ttl_docs_compare_positions(&left->last[range], &left->revisit_end[range]) > 0)
			left->revisit_end[range] = left->last[range];
		left->has_revisit_end[range] = true;
		if (ttl_docs_compare_positions(&left->first[range], &progress->next[range]) < 0)
			progress->next[range] = left->first[range];
		left->has_position[range] = false;
	}
	left->busy = left->undeletable = 0;
	left->expire_at = DT_NOEND;
}
