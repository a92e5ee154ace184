package main

import (
	"net/http"
	"os"
	"runtime"

	"github.com/gin-gonic/gin"
)

// Spdy's rules: a router, JSON, production settings, one worker process. Its Gin used one CPU.
func main() {
	runtime.GOMAXPROCS(1)
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(gin.Recovery())
	router.GET("/", func(context *gin.Context) {
		context.JSON(http.StatusOK, gin.H{"message": "Hello World!"})
	})
	if err := router.Run("127.0.0.1:" + os.Args[1]); err != nil {
		panic(err)
	}
}
