// Shows the OpenAPI document of this server. A key that is entered in the page stays in its memory.
SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#reference",
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  persistAuthorization: false,
  // The page sends nothing to other servers.
  validatorUrl: null,
});
