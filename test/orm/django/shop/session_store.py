"""SESSION_ENGINE that stores Django's sessions as documents that expire."""

from django.contrib.sessions.backends.db import SessionStore as DatabaseStore

from .models import WebSession


class SessionStore(DatabaseStore):
    @classmethod
    def get_model_class(cls):
        return WebSession

    def encode(self, session_dict):
        return {**session_dict, "ttl": self.get_expiry_age()}

    def decode(self, session_data):
        return {key: value for key, value in session_data.items() if key != "ttl"}
