from datetime import datetime, timedelta, timezone

from sqlalchemy import event, func, insert, select, update
from sqlalchemy.exc import DataError, InvalidRequestError
from sqlalchemy.orm import joinedload
from sqlalchemy.orm.exc import ObjectDeletedError

from shop.database import engine
from shop.models import Token, UserSession
from tests.support import DAY, HOUR, MINUTE, DatabaseTest


class Creating(DatabaseTest):
    def expires_at(self, model, id):
        lookup = select(func.ttl_docs.expires_at(model.__tablename__, model._ts, model._ttl)).where(model.id == id)
        return self.session.scalar(lookup)

    def test_a_document_without_a_ttl_inherits_the_default_ttl(self):
        login = self.save(UserSession(user=self.new_user(), doc={"page": "/home"}))
        self.assertIsNone(login._ttl)
        self.assertEqual(self.expires_at(UserSession, login.id), login._ts + timedelta(seconds=1800))

        self.travel(29 * MINUTE)
        self.assertIsNotNone(self.session.scalar(select(UserSession)))
        self.travel(2 * MINUTE)
        self.assertIsNone(self.session.scalar(select(UserSession)))

    def test_a_document_can_have_its_own_ttl(self):
        token = self.save(Token(code="short", doc={"ttl": 600}))
        self.assertEqual(token._ttl, 600)
        self.assertEqual(self.expires_at(Token, token.id), token._ts + timedelta(seconds=600))

        self.travel(9 * MINUTE)
        self.assertIsNotNone(self.session.scalar(select(Token)))
        self.travel(2 * MINUTE)
        self.assertIsNone(self.session.scalar(select(Token)))

    def test_a_document_with_ttl_minus_one_never_expires(self):
        login = self.save(UserSession(user=self.new_user(), doc={"ttl": -1}))
        self.assertEqual(login._ttl, -1)
        # psycopg2 converts infinity to the latest datetime.
        self.assertEqual(self.expires_at(UserSession, login.id).year, datetime.max.year)

        self.travel(1000 * DAY)
        self.assertIsNotNone(self.session.scalar(select(UserSession)))

    def test_every_flush_returns_the_system_columns(self):
        before = self.session.scalar(select(func.ttl_docs.now()))
        token = Token(code="fresh", doc={"ttl": 600})
        self.session.add(token)
        self.session.flush()
        created = token._ts
        token.doc["ttl"] = 900
        self.session.flush()
        # eager_defaults has loaded the columns already.
        self.assertIn("_ts", token.__dict__)
        self.assertEqual(token._ttl, 900)
        after = self.session.scalar(select(func.ttl_docs.now()))
        self.assertLess(before, created)
        self.assertLess(created, token._ts)
        self.assertLess(token._ts, after)

    def test_the_server_replaces_system_columns_from_the_client(self):
        long_ago = datetime(2001, 1, 1, tzinfo=timezone.utc)
        before = self.session.scalar(select(func.ttl_docs.now()))
        token = self.save(Token(code="forged", doc={"ttl": 600}, _ts=long_ago, _ttl=-1))
        self.assertGreater(token._ts, before)
        self.assertEqual(token._ttl, 600)

        token._ts = long_ago
        self.session.commit()
        self.assertGreater(token._ts, before)

    def test_bulk_insert(self):
        rows = [{"code": f"bulk-{n}", "doc": {"n": n, "ttl": 60 if n % 2 else 600}} for n in range(100)]
        self.session.execute(insert(Token), rows)
        self.session.commit()

        numbers = select(Token.doc["n"].as_integer()).order_by(Token.id)
        self.assertEqual(self.session.scalars(numbers).all(), list(range(100)))
        self.travel(2 * MINUTE)
        self.assertEqual(self.session.scalars(numbers).all(), list(range(0, 100, 2)))

    def test_add_all_returns_the_system_columns_of_each_object(self):
        tokens = [Token(code=f"many-{n}", doc={"ttl": n}) for n in range(1, 101)]
        self.session.add_all(tokens)
        self.session.flush()
        self.assertEqual([token.__dict__["_ttl"] for token in tokens], list(range(1, 101)))

    def test_an_invalid_ttl_raises_data_error(self):
        for ttl, shown in ((0, "0"), (1.5, "1.5"), ("60", '"60"')):
            with self.subTest(ttl=ttl):
                self.session.add(Token(code="bad", doc={"ttl": ttl}))
                with self.assertRaises(DataError) as caught:
                    self.session.flush()
                diagnostics = caught.exception.orig.diag
                self.assertEqual(diagnostics.message_primary, f'invalid "ttl" in a document of "tokens": {shown}')
                self.assertIn("an integer from 1 to 2147483647", diagnostics.message_hint)
                self.session.rollback()

        self.save(Token(code="good", doc={"ttl": 60}))
        self.assertEqual(self.session.scalars(select(Token.code)).all(), ["good"])

    def test_an_invalid_ttl_in_a_savepoint_leaves_the_transaction_usable(self):
        self.session.add(Token(code="first", doc={}))
        with self.assertRaises(DataError), self.session.begin_nested():
            self.session.add(Token(code="bad", doc={"ttl": 0}))
        self.session.add(Token(code="last", doc={}))
        self.session.commit()
        self.assertEqual(self.session.scalars(select(Token.code).order_by(Token.id)).all(), ["first", "last"])


class Reading(DatabaseTest):
    def test_an_expired_object_is_not_found(self):
        token_id = self.save(Token(code="gone", doc={"ttl": 60})).id
        self.session.close()
        self.travel(HOUR)
        self.assertIsNone(self.session.get(Token, token_id))
        self.assertIsNone(self.session.scalars(select(Token).filter_by(code="gone")).one_or_none())

    def test_the_attributes_of_an_expired_object_cannot_be_loaded(self):
        token = self.save(Token(code="gone", doc={"ttl": 60}))
        self.travel(HOUR)
        # commit() has unloaded the attributes, so this runs a query.
        with self.assertRaises(ObjectDeletedError):
            token.doc

    def test_refresh_of_an_expired_object_fails(self):
        token = self.save(Token(code="gone", doc={"ttl": 60}))
        self.assertEqual(token.code, "gone")
        self.travel(HOUR)
        with self.assertRaisesRegex(InvalidRequestError, "Could not refresh instance"):
            self.session.refresh(token)

    def test_get_asks_the_database_once_in_a_transaction(self):
        token = self.save(Token(code="gone", doc={"ttl": 60}))
        self.assertEqual(token.code, "gone")
        self.travel(HOUR)
        # The session has loaded the token, and runs no query.
        self.assertIs(self.session.get(Token, token.id), token)
        self.assertIsNone(self.session.get(Token, token.id, populate_existing=True))

    def test_count_and_pages_by_offset_have_only_live_documents(self):
        self.save(*(Token(code=f"page-{n}", doc={"ttl": 60 if n % 3 == 0 else 600}) for n in range(12)))
        self.travel(2 * MINUTE)

        self.assertEqual(self.session.scalar(select(func.count()).select_from(Token)), 8)
        page = select(Token.code).order_by(Token.id).limit(3)
        self.assertEqual(self.session.scalars(page).all(), ["page-1", "page-2", "page-4"])
        self.assertEqual(self.session.scalars(page.offset(6)).all(), ["page-10", "page-11"])

    def test_pages_by_key_continue_after_a_document_that_has_expired(self):
        self.save(*(Token(code=f"page-{n}", doc={"ttl": 60 if n % 3 == 0 else 600}) for n in range(12)))
        page = select(Token).order_by(Token.id).limit(4)
        first = self.session.scalars(page).all()
        self.assertEqual([token.code for token in first], ["page-0", "page-1", "page-2", "page-3"])

        self.travel(2 * MINUTE)
        second = self.session.scalars(page.where(Token.id > first[-1].id)).all()
        self.assertEqual([token.code for token in second], ["page-4", "page-5", "page-7", "page-8"])

    def test_a_server_side_cursor_shows_one_point_in_time(self):
        self.save(*(Token(code=f"row-{n}", doc={"ttl": 60}) for n in range(10)))
        streamed = self.session.scalars(
            select(Token.code).order_by(Token.id), execution_options={"stream_results": True, "max_row_buffer": 1}
        )
        self.assertEqual(next(streamed), "row-0")
        self.travel(HOUR)
        self.assertEqual(len(streamed.all()), 9)
        self.assertEqual(self.session.scalars(select(Token.code)).all(), [])


class SlidingExpiry(DatabaseTest):
    def test_touch_restarts_the_countdown(self):
        login = self.save(UserSession(user=self.new_user(), doc={"page": "/cart"}))
        for _ in range(2):
            self.travel(29 * MINUTE)
            login.touch()
            self.session.commit()
        self.travel(29 * MINUTE)
        self.assertEqual(login.doc, {"page": "/cart"})
        self.travel(2 * MINUTE)
        self.assertIsNone(self.session.scalar(select(UserSession)))

    def test_touch_does_not_send_the_document(self):
        login = self.save(UserSession(user=self.new_user(), doc={"page": "/cart"}))
        self.assertEqual(login.doc, {"page": "/cart"})
        sent = []

        def record(connection, cursor, statement, *rest):
            sent.append(statement)

        event.listen(engine, "before_cursor_execute", record)
        self.addCleanup(event.remove, engine, "before_cursor_execute", record)
        login.touch()
        self.session.flush()
        (statement,) = sent
        self.assertRegex(statement, r"^UPDATE sessions SET _ts=now\(\) WHERE sessions.id = \S+ RETURNING ")

    def test_touch_by_key_reports_whether_the_session_is_live(self):
        login_id = self.save(UserSession(user=self.new_user(), doc={"page": "/cart"})).id
        touch = update(UserSession).where(UserSession.id == login_id).values(_ts=func.now())
        for passing, touched in ((29 * MINUTE, 1), (29 * MINUTE, 1), (31 * MINUTE, 0)):
            self.travel(passing)
            self.assertEqual(self.session.execute(touch).rowcount, touched)
            self.session.commit()

    def test_reading_does_not_restart_the_countdown(self):
        login_id = self.save(UserSession(user=self.new_user(), doc={})).id
        for passing, found in ((29 * MINUTE, True), (2 * MINUTE, False)):
            self.travel(passing)
            login = self.session.get(UserSession, login_id, options=[joinedload(UserSession.user)])
            self.assertEqual(login is not None, found)
            self.session.close()
