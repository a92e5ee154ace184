import Fastify from 'fastify'

// Production settings: no logger, and a schema for the response, as Fastify's documentation advises.
const app = Fastify({ logger: false })
const response = { 200: { type: 'object', properties: { message: { type: 'string' } } } }
app.get('/', { schema: { response } }, async () => ({ message: 'Hello World!' }))
await app.listen({ host: '127.0.0.1', port: Number(process.argv[2]) })
