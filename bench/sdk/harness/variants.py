"""The frameworks and the variants of each: what is started, checked and measured."""

from dataclasses import dataclass, field

REPLAYED = "idempotency-status: replayed"


@dataclass(frozen=True)
class Variant:
    """A way to recognize a retry.

    Attributes:
        name: VARIANT of the service.
        label: the name in the table.
        package: the distribution with the version that is shown.
        header: the header of the key.
        is_replay: whether stored keys are sent, to the service of the variant `hapax`.
        keys: rows that a request adds to the table of the keys.
        events: rows that a request adds to the outbox.
        repeats: whether a repeated request has its effect again.
    """

    name: str
    label: str
    package: str | None = None
    header: str = "Idempotency-Key"
    is_replay: bool = False
    keys: int = 0
    events: int = 0
    repeats: bool = False

    @property
    def service(self) -> str:
        """VARIANT of the service to which the requests are sent."""
        return "hapax" if self.is_replay else self.name

    @property
    def is_on_redis(self) -> bool:
        """Whether the responses are stored in Redis."""
        return self.name.endswith("-redis")


@dataclass(frozen=True)
class Framework:
    """A framework, the command of its services, and other packages for idempotency keys.

    Attributes:
        name: the name of the framework's package.
        title: the name in the table.
        language: the folder of the service.
        command: the arguments after the interpreter. `{port}` is replaced.
        peers: variants with other packages.
        with_it: packages whose versions are shown beside that of the framework.
    """

    name: str
    title: str
    language: str
    command: tuple[str, ...]
    with_it: tuple[str, ...]
    peers: tuple[Variant, ...] = field(default=())

    @property
    def variants(self) -> list[Variant]:
        """All variants, in the order of the table."""
        return [BARE, HAPAX, EVENT, *self.peers, REPLAY]


BARE = Variant("bare", "bare INSERT", repeats=True)
HAPAX = Variant("hapax", "hapax: key and response", "hapax", keys=1)
EVENT = Variant("event", "hapax: key, response and one event", "hapax", keys=1, events=1)
REPLAY = Variant("replay", "hapax: replay", "hapax", is_replay=True)


def _peers(package: str, *storages: str, header: str = "Idempotency-Key") -> tuple[Variant, ...]:
    """Return the variants of a package. The name of a variant is without the scope of npm."""
    name = package.removesuffix("/core").removeprefix("@")
    labels = {"memory": "in memory", "redis": "in Redis"}
    return tuple(
        Variant(f"{name}-{storage}", f"`{package}`, {labels[storage]}", package, header)
        for storage in storages
    )


CORE = _peers("@node-idempotency/core", "memory", "redis")
# Threads as many as connections. One process, because some variants store responses in memory.
GUNICORN = ("--workers", "1", "--threads", "8", "--keep-alive", "60", "--log-level", "warning")
UVICORN = ("--host", "127.0.0.1", "--port", "{port}", "--log-level", "warning", "--no-access-log")

FRAMEWORKS = [
    Framework(
        "express",
        "express",
        "node",
        ("express.js",),
        ("pg",),
        _peers("express-idempotency", "memory", "redis"),
    ),
    Framework("fastify", "Fastify", "node", ("fastify.js",), ("pg",), CORE),
    Framework("hono", "Hono", "node", ("hono.js",), ("@hono/node-server", "pg"), CORE),
    Framework(
        "fastapi",
        "FastAPI",
        "python",
        ("-m", "uvicorn", "fastapi_service:app", *UVICORN),
        ("uvicorn", "uvloop", "psycopg"),
        (
            *_peers("asgi-idempotency-header", "memory", "redis"),
            *_peers("fastapi-idempotency", "memory"),
        ),
    ),
    Framework(
        "flask",
        "Flask",
        "python",
        ("-m", "gunicorn", "flask_service:app", "--bind", "127.0.0.1:{port}", *GUNICORN),
        ("gunicorn", "psycopg"),
        _peers("flask-once", "memory", header="Idempotent-Key"),
    ),
    Framework(
        "django",
        "Django",
        "python",
        ("-m", "gunicorn", "django_service:app", "--bind", "127.0.0.1:{port}", *GUNICORN),
        ("gunicorn", "psycopg"),
        _peers("django-idempotency-key", "memory", "redis"),
    ),
]
