import { defineConfig } from "vitest/config";

// `make dashboard-dev` sets it: the service whose API the page is shown with.
const service = process.env.TUNER_URL ?? "http://127.0.0.1:8000";

export default defineConfig({
  build: {
    outDir: process.env.DASHBOARD_OUT ?? "../tuner_service/web",
    emptyOutDir: true,
    target: "es2023",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0, // a data: address would need an exception in the content security policy
    cssCodeSplit: false,
    reportCompressedSize: false,
  },
  server: {
    // The service takes a page's requests from its own origin only; here that is the origin of the proxy.
    proxy: { "/api": { target: service, changeOrigin: true, headers: { origin: service } } },
  },
  test: { include: ["tests/**/*.test.ts"], environment: "node" },
});
