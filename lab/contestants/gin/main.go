package main

import (
	"net/http"
	"os"

	"github.com/gin-gonic/gin"
)

// Spdy's rules: a router, JSON, production settings, one worker process.
func main() {
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.GET("/", func(context *gin.Context) {
		context.JSON(http.StatusOK, gin.H{"message": "Hello World!"})
	})
	if err := router.Run("127.0.0.1:" + os.Args[1]); err != nil {
		panic(err)
	}
}
