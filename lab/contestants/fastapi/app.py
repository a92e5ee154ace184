"""The hello-world JSON route of the lab, in FastAPI."""

from fastapi import FastAPI

app = FastAPI(openapi_url=None)


@app.get("/")
async def hello() -> dict[str, str]:
    return {"message": "Hello World!"}
