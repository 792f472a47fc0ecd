"""An ASGI application that is built in the loop of the server, to which a pool can be bound."""

import uvicorn


class Lazy:
    """Opens the engine of a driver, and passes it to ``build``, before the first request."""

    def __init__(self, driver, build):
        self.driver, self.build, self.app = driver, build, None

    async def __call__(self, scope, receive, send):
        if self.app is None:
            engine = self.driver.engine()
            self.app = self.build(self.driver, await engine if self.driver.IS_ASYNC else engine)
        await self.app(scope, receive, send)


def serve(driver, build, port):
    app = Lazy(driver, build)
    # The server begins with the scope `lifespan`.
    uvicorn.run(
        app, host="127.0.0.1", port=port, lifespan="on", access_log=False, log_level="warning"
    )
