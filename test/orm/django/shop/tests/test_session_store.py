"""Django's own sessions, stored by shop.session_store."""

from importlib import import_module

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import User
from django.contrib.sessions.backends.base import UpdateError
from django.test import TestCase

from shop.models import WebSession

from .clock import TimeTravelMixin, travel

SessionStore = import_module(settings.SESSION_ENGINE).SessionStore


class SessionStoreTests(TimeTravelMixin, TestCase):
    def setUp(self):
        super().setUp()
        session = SessionStore()
        session["basket"] = ["apple"]
        session.set_expiry(600)
        session.save()
        self.key = session.session_key

    def test_the_ttl_of_the_document_is_the_expiry_of_the_session(self):
        self.assertEqual(WebSession.objects.get().session_data["ttl"], 600)
        self.assertEqual(dict(SessionStore(self.key).items()), {"basket": ["apple"], "_session_expiry": 600})

    def test_an_expired_session_is_empty(self):
        travel(600)
        session = SessionStore(self.key)
        self.assertEqual(dict(session.items()), {})
        self.assertIs(session.exists(self.key), False)

    def test_saving_a_session_restarts_its_countdown(self):
        travel(500)
        SessionStore(self.key).save()
        travel(800)
        self.assertEqual(SessionStore(self.key)["basket"], ["apple"])
        travel(1100)
        self.assertIs(SessionStore().exists(self.key), False)

    def test_a_session_that_expires_during_a_request_does_not_come_back(self):
        session = SessionStore(self.key)
        session["basket"] = []
        travel(600)
        with self.assertRaises(UpdateError):
            session.save()

    def test_a_login_ends_when_its_session_expires(self):
        ann = User.objects.create(username="ann")
        self.client.force_login(ann)
        self.assertEqual(get_user(self.client), ann)
        travel(settings.SESSION_COOKIE_AGE)
        self.assertIs(get_user(self.client).is_anonymous, True)
